/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The simulator: readers on bad input, policies on small traces whose answer is
 * known, and all of it against the tables that came with the real traces. Those
 * lie outside the tree ($CXL_KV_TRACES, else ../shared/data/traces); without
 * them their tests are skipped.
 */
#include "sim/att_policies.h"
#include "sim/replay.h"
#include "sim/run.h"
#include "sim/synthetic.h"
#include "sim/trace_file.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace cxlkv;
using namespace cxlkv::sim;

namespace {

std::string trace_path(const std::string &name)
{
	const char *folder = getenv("CXL_KV_TRACES");
	return std::string(folder ? folder : "../shared/data/traces") + "/" + name;
}

/* ids 0..n-1 in the order given, a request each line. */
BlockTrace trace_of(const std::string &text)
{
	auto trace = parse_block_trace(text);
	EXPECT_TRUE(trace) << (trace ? "" : trace.error().what);
	return *trace;
}

Hits run(const BlockTrace &trace, const char *policy, uint32_t capacity)
{
	auto cache = find_cache_policy(policy)->make({trace, capacity});
	return replay(trace, *cache);
}

} // namespace

TEST(Readers, BlockTracesInBothForms)
{
	BlockTrace json =
		trace_of("{\"timestamp\": 5, \"input_length\": 9, \"output_length\": 1, "
			 "\"hash_ids\": [7, 900]}\n"
			 "{\"timestamp\": 27.0, \"hash_ids\": [7, 18446744073709551615, 3]}\n");
	EXPECT_EQ(json.nr_requests(), 2u);
	EXPECT_EQ(json.nr_unique(), 4u);
	EXPECT_EQ(json.request(1).time_ms, 27u);
	EXPECT_EQ(json.request(1).blocks[0], json.request(0).blocks[0]);
	BlockTrace lines = trace_of("# a remark\n5 7 900\n\n27 7 1 3");
	EXPECT_EQ(lines.accesses(), json.accesses());
}

TEST(Readers, BadLinesAreNamed)
{
	auto wrong = [](const char *text) {
		auto trace = parse_block_trace(text);
		return trace ? std::string("accepted") : trace.error().what;
	};
	EXPECT_NE(wrong("1 2\n3 x\n").find("line 2"), std::string::npos);
	EXPECT_NE(wrong("1 -2\n").find("unsigned"), std::string::npos);
	EXPECT_NE(wrong("99999999999999999999 1\n").find("line 1"), std::string::npos);
	EXPECT_NE(wrong("{\"timestamp\": 1, \"hash_ids\": [1, -2]}").find("hash id"),
		  std::string::npos);
	EXPECT_NE(wrong("{\"hash_ids\": [1]}").find("timestamp"), std::string::npos);
	EXPECT_NE(wrong("{\"timestamp\": 1").find("JSON"), std::string::npos);
	EXPECT_NE(wrong("").find("no request"), std::string::npos);
	EXPECT_NE(wrong("17\n").find("no request"), std::string::npos);
}

TEST(Readers, DamagedXzIsRefused)
{
	std::string path = testing::TempDir() + "cxl-kv-sim-" + std::to_string(getpid());
	FILE *file = fopen(path.c_str(), "wb");
	ASSERT_NE(file, nullptr);
	fwrite("\xfd"
	       "7zXZ\0garbage",
	       1, 13, file);
	fclose(file);
	auto bytes = read_trace_file(path);
	ASSERT_FALSE(bytes);
	EXPECT_NE(bytes.error().what.find(".xz"), std::string::npos);
	unlink(path.c_str());
	bytes = read_trace_file(path);
	ASSERT_FALSE(bytes);
	EXPECT_EQ(bytes.error().code, ENOENT);
}

TEST(Readers, AnEmptyFileIsReadAndHasNoRequest)
{
	auto bytes = read_trace_file("/dev/null");
	ASSERT_TRUE(bytes) << bytes.error().what;
	EXPECT_EQ(*bytes, "");
	EXPECT_FALSE(read_trace_file(testing::TempDir())) << "a folder";
}

TEST(Jobs, WhatOneThrowsIsThrownToTheCaller)
{
	EXPECT_THROW(run_jobs(64, [](size_t i) { i == 40 ? throw std::bad_alloc() : void(); }),
		     std::bad_alloc);
}

TEST(Policies, LruAndOptOnALoop)
{
	std::string text;
	for (int i = 0; i < 12; i++)
		text += std::to_string(i) + " " + std::to_string(i % 3) + "\n";
	BlockTrace loop = trace_of(text);
	EXPECT_EQ(run(loop, "lru", 2).nr_block_hits, 0u);
	EXPECT_EQ(run(loop, "lru", 3).nr_block_hits, 9u);
	EXPECT_EQ(run(loop, "opt", 2).nr_block_hits, 6u);
}

TEST(Policies, LeafFirstKeepsThePrefix)
{
	BlockTrace trace = trace_of("1000 1 2 3 4\n2000 9\n3000 1 2 3 4\n");
	EXPECT_EQ(run(trace, "lru", 4).nr_prefix_hits, 0u);
	EXPECT_EQ(run(trace, "lru_leaf", 4).nr_prefix_hits, 3u);
	EXPECT_EQ(run(trace, "adaptive", 4).nr_prefix_hits, 3u);
}

TEST(Policies, NoneHoldsMoreThanItsCapacityAndNoneBeatsOpt)
{
	std::string text;
	uint32_t seed = 1;
	for (int i = 0; i < 600; i++) {
		text += std::to_string(i);
		for (uint32_t b = 0, user = (seed = seed * 1664525 + 1013904223) >> 28; b < 12; b++)
			text += " " + std::to_string(user * 100 + b);
		text += "\n";
	}
	BlockTrace trace = trace_of(text);
	for (uint32_t capacity : {1u, 7u, 40u, 150u, trace.nr_unique()}) {
		uint64_t best = run(trace, "opt", capacity).nr_block_hits;
		for (const CachePolicy &policy : cache_policies()) {
			auto cache = policy.make({trace, capacity});
			Hits hits = replay(trace, *cache);
			uint32_t resident = 0;
			for (uint32_t b = 0; b < trace.nr_unique(); b++)
				resident += cache->contains(b);
			EXPECT_LE(resident, capacity) << policy.name;
			EXPECT_LE(hits.nr_block_hits, best) << policy.name << " at " << capacity;
			EXPECT_LE(hits.nr_prefix_hits, hits.nr_accesses) << policy.name;
			if (capacity < trace.nr_unique())
				continue;
			EXPECT_EQ(hits.nr_block_hits, best)
				<< policy.name << " lost a block without need";
		}
	}
}

/* Traces of other recorders have the time of day: some 1.7e12 ms. */
TEST(Policies, TimeCountsFromAnyMoment)
{
	auto shifted = [](uint64_t start_ms) {
		std::string text;
		for (uint64_t i = 0; i < 3000; i++) {
			text += std::to_string(start_ms + i * 1000);
			/* Every other request is of one of ten, the others never come back. */
			for (uint64_t b = 0; b < 4; b++)
				text += " " + std::to_string(i % 2 ? 10000 + i * 4 + b
								   : i / 2 % 10 * 4 + b);
			text += "\n";
		}
		return run(trace_of(text), "adaptive", 48).nr_prefix_hits;
	};
	const uint64_t hits = shifted(0);
	EXPECT_GT(hits, 4000u);
	EXPECT_EQ(shifted(1'764'000'000'000), hits);
	EXPECT_EQ(shifted(UINT64_MAX - 3'000'000), hits);
}

TEST(Policies, PaperIsLruWhereScoresHaveFaded)
{
	/* Block 0 is used in 40 requests, then block 1 until that has faded, then 1 to 4 in turn.
	 */
	std::string text;
	for (int i = 0; i < 80; i++)
		text += std::to_string(i) + (i < 40 ? " 0\n" : " 1\n");
	for (int i = 0; i < 300; i++)
		text += std::to_string(80 + i) + " " + std::to_string(1 + i % 4) + "\n";
	BlockTrace trace = trace_of(text);
	EXPECT_EQ(run(trace, "paper", 4).nr_block_hits, run(trace, "lru", 4).nr_block_hits);
	/* A score that is fresh keeps a block that is older than another. */
	text.clear();
	for (int i = 0; i < 20; i++)
		text += std::to_string(i) + " 1\n";
	BlockTrace hot = trace_of(text + "20 2\n21 3\n22 1\n");
	EXPECT_EQ(run(hot, "paper", 2).nr_block_hits, 20u);
	EXPECT_EQ(run(hot, "lru", 2).nr_block_hits, 19u);
}

TEST(Report, LatenciesOfOnesOwnUseWhatAWarmTierWouldHold)
{
	std::string text;
	for (int i = 0; i < 40; i++)
		text += std::to_string(i) + " " + std::to_string(i % 4) + "\n";
	BlockTrace loop = trace_of(text);
	ThreeTiers tiers;
	tiers.latency = {100, 200, 10000, 0.1};
	tiers.paper_split = false;
	/* One block hot, four more warm: but for the first round all is warm. */
	SimResult result = run_blocks(loop, {find_cache_policy("lru")}, {25}, tiers, [](double) {});
	EXPECT_NEAR(result.rows[0].cells[0].ns, 0.9 * 200 + 0.1 * 10000, 1e-6);
	EXPECT_NE(to_json(result).find("\"cold_ns\": 10000"), std::string::npos);
}

TEST(Report, EveryFormHasEveryFigure)
{
	SimResult result;
	result.trace = "a & b";
	result.capacities = {1, 10};
	for (const char *name : {"adaptive", "lru", "opt"})
		result.rows.push_back(
			{name, std::string(name) != "opt", {{11, 12, 7, 0}, {31, 32, 5, 0}}});
	result.rows[0].cells[1].useful = 33;
	result.rows[2].cells[1].useful = 34;
	EXPECT_NE(to_table(result).find("31.00/33.00/5.0"), std::string::npos);
	EXPECT_NE(to_csv(result).find("adaptive,10,31.0000,33.0000,5.0000\n"), std::string::npos);
	EXPECT_NE(to_json(result).find("\"prefix_hit_percent\": 33.0"), std::string::npos);
	EXPECT_NE(to_svg(result).find("a &amp; b"), std::string::npos);
	EXPECT_NE(gap_summary(result).find(
			  "+1.00 points to the best other (lru), 50 % of the gap to OPT closed"),
		  std::string::npos);
}

TEST(SyntheticLoad, FollowsFromItsSeedAndIsMarked)
{
	Synthetic load{.users = 2, .tokens = 1024, .heads = 4, .tokens_per_block = 16, .steps = 8};
	auto reads = [](const Synthetic &of, uint32_t head, uint32_t token) {
		std::vector<SyntheticRead> found;
		synthetic_reads(of, 1, head, token, found);
		std::vector<uint32_t> blocks;
		for (const SyntheticRead &read : found)
			blocks.push_back(read.block);
		return blocks;
	};
	Synthetic other = load;
	other.seed = 2;
	EXPECT_EQ(reads(load, 3, 900), reads(load, 3, 900));
	EXPECT_NE(reads(load, 3, 900), reads(other, 3, 900));
	EXPECT_NE(reads(load, 3, 900), reads(load, 2, 900));
	for (uint32_t token = 0; token < load.tokens; token++) {
		auto blocks = reads(load, 0, token);
		EXPECT_EQ(blocks.front(), 0u) << "the sink";
		EXPECT_EQ(blocks.back(), token / 16) << "the block that is written";
		EXPECT_TRUE(std::ranges::adjacent_find(blocks, std::greater_equal()) ==
			    blocks.end());
	}
	SimResult result = run_synthetic(load, {"adaptive", "lru"}, {50}, [](double) {});
	EXPECT_NE(to_table(result).find("not for claims of quality"), std::string::npos);
	EXPECT_NE(to_json(result).find("not for claims of quality"), std::string::npos);
	EXPECT_GT(result.rows[0].cells[0].hit, 50);
	EXPECT_EQ(load.check(), "");
	load.tokens = 1000;
	EXPECT_NE(load.check(), "");
}

/* ---- against the tables of the real traces ---- */

namespace {

/* Prefix hits of the conversation table, by policy, at 1, 2, 5, 10, 20, 50 %. */
struct TableRow {
	const char *policy;
	double tolerance;
	double prefix[6];
};
const std::vector<double> percents = {1, 2, 5, 10, 20, 50};
const TableRow conversation[] = {
	{"lru", 0.1, {4.43, 5.58, 12.82, 21.66, 29.06, 34.48}},
	{"lru_leaf", 0.1, {4.43, 5.58, 12.91, 21.68, 29.06, 34.48}},
	{"opt", 0.1, {19.72, 26.09, 33.64, 34.66, 34.66, 34.66}},
	{"lfu", 1, {4.91, 6.74, 10.95, 17.44, 27.38, 34.45}},
	{"arc", 1, {5.40, 7.31, 13.11, 22.41, 28.23, 34.46}},
	{"arc_leaf", 1, {5.40, 7.31, 13.44, 22.46, 28.28, 34.46}},
	{"s3fifo", 1, {6.08, 8.30, 14.54, 20.45, 28.12, 34.13}},
	{"paper", 0.2, {4.43, 5.58, 12.82, 21.66, 29.06, 34.48}},
	{"2q", 1, {5.54, 7.82, 12.30, 19.91, 27.75, 32.98}},
};

double mean(const Row &row)
{
	double sum = 0;
	for (const Cell &cell : row.cells)
		sum += cell.useful;
	return sum / static_cast<double>(row.cells.size());
}

} // namespace

TEST(RealTraces, BaselinesAgreeWithTheTableAndAdaptiveBeatsThem)
{
	auto bytes = read_trace_file(trace_path("conversation.jsonl.xz"));
	if (!bytes)
		GTEST_SKIP() << "no traces: " << bytes.error().what;
	BlockTrace trace = trace_of(*bytes);
	EXPECT_EQ(trace.nr_accesses(), 171316u);
	EXPECT_EQ(trace.nr_unique(), 111932u);
	std::vector<const CachePolicy *> all;
	for (const CachePolicy &policy : cache_policies())
		all.push_back(&policy);
	SimResult result = run_blocks(trace, all, percents, {}, [](double) {});
	auto row = [&](std::string_view name) -> const Row & {
		return *std::find_if(result.rows.begin(), result.rows.end(),
				     [&](const Row &r) { return r.policy == name; });
	};
	for (const TableRow &table : conversation)
		for (size_t i = 0; i < percents.size(); i++)
			EXPECT_NEAR(row(table.policy).cells[i].useful, table.prefix[i],
				    table.tolerance)
				<< table.policy << " at " << percents[i];
	const Row &adaptive = row("adaptive");
	for (size_t i = 0; i < percents.size(); i++)
		EXPECT_GE(adaptive.cells[i].useful, row("lru_leaf").cells[i].useful - 0.3)
			<< percents[i];
	for (const Row &other : result.rows)
		if (&other != &adaptive && other.online) {
			EXPECT_GT(mean(adaptive), mean(other)) << other.policy;
		}
}

TEST(RealTraces, AttentionBaselinesAgreeWithTheTableAndAdaptiveIsNoWorse)
{
	std::vector<AttTrace> traces;
	for (int i = 100; i < 108; i++) {
		auto bytes =
			read_trace_file(trace_path("att512/gen" + std::to_string(i) + ".att.xz"));
		if (!bytes)
			GTEST_SKIP() << "no traces: " << bytes.error().what;
		auto trace = AttTrace::parse(std::move(*bytes));
		ASSERT_TRUE(trace);
		traces.push_back(std::move(*trace));
	}
	const std::vector<double> budgets = {10, 20, 50};
	std::vector<const AttPolicy *> policies = {find_att_policy("lru+head"),
						   find_att_policy("opt+head"),
						   find_att_policy("adaptive")};
	const double lru[] = {54.9, 82.3, 97.8}, opt[] = {58.0, 86.1, 99.0};
	SimResult result = run_att(traces, policies, Access{}, budgets, {}, [](double) {});
	double above = 0;
	for (size_t i = 0; i < budgets.size(); i++) {
		const Cell &ours = result.rows[2].cells[i], &theirs = result.rows[0].cells[i];
		EXPECT_NEAR(theirs.hit, lru[i], 0.5) << budgets[i];
		EXPECT_NEAR(result.rows[1].cells[i].hit, opt[i], 0.5) << budgets[i];
		EXPECT_GE(ours.hit, theirs.hit - 1) << budgets[i];
		EXPECT_GE(ours.useful, theirs.useful - 1) << budgets[i];
		above += ours.hit - theirs.hit;
	}
	EXPECT_GT(above, 0);
}
