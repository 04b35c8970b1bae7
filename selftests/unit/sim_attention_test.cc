/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Attention traces in the simulator: files that are read, and written by a
 * recording; policies on small traces whose answer is known.
 */
#include "sim/att_policies.h"
#include "sim/att_writer.h"
#include "sim/run.h"
#include "sim/trace_file.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace cxlkv;
using namespace cxlkv::sim;

namespace {

std::string att_bytes(std::initializer_list<uint32_t> header, size_t nr, uint8_t value = 128)
{
	std::string bytes(reinterpret_cast<const char *>(header.begin()), header.size() * 4);
	return bytes + std::string(nr, static_cast<char>(value));
}

constexpr uint32_t magic = 0x4B564154;

/* A trace that is made byte by byte. */
struct Maker {
	uint32_t layers, kv_heads, steps, blocks, tokens;
	std::string bytes = att_bytes({magic, layers, kv_heads, steps, blocks, tokens},
				      size_t{layers} * kv_heads * steps * blocks, 0);

	void look(uint32_t layer, uint32_t head, uint32_t step, uint32_t block, double mass)
	{
		size_t row = (size_t{layer} * kv_heads + head) * steps + step;
		bytes[24 + row * blocks + block] =
			static_cast<char>(std::lround(255 * std::sqrt(mass)));
	}
	[[nodiscard]] AttTrace trace() const
	{
		auto parsed = AttTrace::parse(bytes);
		EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().what);
		return *parsed;
	}
};

AttHits run(const AttTrace &trace, const char *policy, double budget, const Access &access = {})
{
	AttHits hits;
	replay_att(trace, *find_att_policy(policy), access, budget, hits);
	return hits;
}

} // namespace

TEST(Readers, AttFilesAreChecked)
{
	auto wrong = [](std::string bytes) {
		auto trace = AttTrace::parse(std::move(bytes));
		return trace ? std::string("accepted") : trace.error().what;
	};
	EXPECT_EQ(wrong(att_bytes({magic, 2, 3, 8, 4, 2}, 2 * 3 * 8 * 4)), "accepted");
	EXPECT_NE(wrong("short").find("header"), std::string::npos);
	EXPECT_NE(wrong(att_bytes({magic + 1, 2, 3, 8, 4, 2}, 192)).find("magic"),
		  std::string::npos);
	EXPECT_NE(wrong(att_bytes({magic, 2, 3, 8, 4, 2}, 191)).find("191"), std::string::npos);
	EXPECT_NE(wrong(att_bytes({magic, 2, 3, 9, 4, 2}, 2 * 3 * 9 * 4)).find("more steps"),
		  std::string::npos);
	EXPECT_NE(wrong(att_bytes({magic, 0, 3, 8, 4, 2}, 192)).find("layers"), std::string::npos);
	EXPECT_NE(wrong(att_bytes({magic, 2, 3, 8, 4, 0}, 192)).find("tokens"), std::string::npos);
	const uint32_t most = (1 << 20) - 1;
	EXPECT_NE(wrong(att_bytes({magic, 1024, 1024, 1 << 24, most, 1 << 20}, 9))
			  .find("header says"),
		  std::string::npos);
	/* 2^64 bytes, which is none in 64 bits. */
	EXPECT_NE(
		wrong(att_bytes({magic, 1024, 1024, 1 << 24, 1 << 20, 1 << 20}, 0)).find("blocks"),
		std::string::npos);
}

TEST(Readers, AccessIsParsed)
{
	EXPECT_EQ((*Access::parse("top:8")).top, 8u);
	EXPECT_FLOAT_EQ((*Access::parse("thr:0.05")).threshold, 0.05f);
	for (const char *text :
	     {"", "top:", "top:0", "top:-1", "top:8x", "thr:1", "thr:nan", "all"})
		EXPECT_FALSE(Access::parse(text)) << text;
}

TEST(Policies, AttentionThatStaysIsHitAndThatMovesIsFetched)
{
	/* One head, 8 blocks of 4 tokens; block 0 and the current one have all the mass. */
	std::string bytes = att_bytes({magic, 1, 1, 32, 8, 4}, 32 * 8, 0);
	for (size_t t = 0; t < 32; t++) {
		bytes[24 + t * 8] = '\xb4';
		bytes[24 + t * 8 + t / 4] = '\xb4';
	}
	auto trace = AttTrace::parse(bytes);
	ASSERT_TRUE(trace);
	for (const AttPolicy &policy : att_policies()) {
		AttHits hits;
		replay_att(*trace, policy, Access{}, 0.25, hits);
		EXPECT_EQ(hits.nr_head_steps, 16u) << policy.name;
		EXPECT_EQ(hits.nr_accesses, 32u) << policy.name;
		EXPECT_EQ(hits.nr_hits, 32u) << policy.name;
		EXPECT_NEAR(hits.recall_percent(), 100, 1e-9) << policy.name;
		EXPECT_EQ(hits.nr_fetched, 0u) << policy.name;
	}
}

TEST(Policies, H2oKeepsHeavyHittersAndTheLastBlocks)
{
	/* One head, 16 blocks of 2 tokens. Block 1 has all the mass up to step 15; then what is
	 * read are the last three blocks. A budget of 6 holds both. */
	std::string bytes = att_bytes({magic, 1, 1, 32, 16, 2}, 32 * 16, 0);
	for (size_t t = 0; t < 32; t++)
		for (size_t back = 0; back < 3; back++)
			bytes[24 + t * 16 + (t < 16 ? std::min<size_t>(1, t / 2) : t / 2 - back)] =
				'\xb4';
	for (size_t t = 28; t < 32; t++)
		bytes[24 + t * 16 + 1] = '\xb4';
	auto trace = AttTrace::parse(bytes);
	ASSERT_TRUE(trace);
	AttHits hits;
	replay_att(*trace, *find_att_policy("h2o+head"), Access{}, 6. / 16, hits);
	EXPECT_EQ(hits.nr_hits, hits.nr_accesses);
	AttHits window;
	replay_att(*trace, *find_att_policy("sink+window"), Access{}, 6. / 16, window);
	EXPECT_EQ(window.nr_accesses - window.nr_hits, 4u) << "block 1 is not of the window";
}

TEST(Policies, PyramidGivesEarlyLayersWhatLateOnesDoNotGet)
{
	/* Three layers that look at the first block, the one being written and the one before. 2
	 * of 16 blocks on average: 3 in the first layer, 2 in the second, 1 in the last. */
	Maker maker{3, 1, 32, 16, 2};
	for (uint32_t layer = 0; layer < 3; layer++)
		for (uint32_t t = 0; t < 32; t++)
			for (uint32_t block : {0u, t < 2 ? 0 : t / 2 - 1, t / 2})
				maker.look(layer, 0, t, block, 0.3);
	const AttTrace trace = maker.trace();
	const AttHits pyramid = run(trace, "pyramid+head", 2. / 16);
	const AttHits equal = run(trace, "h2o+head", 2. / 16);
	EXPECT_EQ(equal.nr_accesses, 3u * 16 * 3);
	/* Counted are 16 steps; in every second a block begins, and the one before is still there.
	 */
	EXPECT_EQ(equal.nr_hits, 3u * (16 * 2 + 8)) << "without the block before in each layer";
	EXPECT_EQ(pyramid.nr_hits, 16u * 3 + (16 * 2 + 8) + (16 * 1 + 8));
	/* A layer more in the middle of nothing: shares keep the mean. */
	const AttPolicy *policy = find_att_policy("pyramid+head");
	for (uint32_t layers : {1u, 2u, 5u, 80u}) {
		double sum = 0;
		for (uint32_t layer = 0; layer < layers; layer++)
			sum += policy->layer_share(layer, layers);
		EXPECT_NEAR(sum, layers, 1e-9);
	}
}

TEST(Policies, AdaMovesTheBudgetOfALayerToTheHeadWithManyHeavyHitters)
{
	/* Both heads look at the first block and at the one that is written, head 0 at blocks 1 to
	 * 4 as well. Of a budget of 8, half are the last blocks: those and the first leave 2 for a
	 * head, and head 0 needs 4. */
	Maker maker{1, 2, 64, 32, 2};
	for (uint32_t t = 0; t < 64; t++) {
		for (uint32_t head = 0; head < 2; head++) {
			maker.look(0, head, t, 0, 0.2);
			maker.look(0, head, t, t / 2, 0.2);
		}
		for (uint32_t block = 1; block <= std::min(4u, t / 2); block++)
			maker.look(0, 0, t, block, 0.2);
	}
	const AttTrace trace = maker.trace();
	const AttHits ada = run(trace, "ada+pool", 8. / 32), head = run(trace, "h2o+head", 8. / 32);
	EXPECT_EQ(ada.nr_hits, ada.nr_accesses);
	EXPECT_LT(head.nr_hits, head.nr_accesses - 32);
}

TEST(Recording, WhatWasAddedIsReadBackAndTheRestIsZero)
{
	const std::string path = testing::TempDir() + "cxl-kv-att-" + std::to_string(getpid());
	AttWriter writer(2, 1, 4);
	EXPECT_TRUE(writer.add(5, 1, 1, 0.25f));
	EXPECT_TRUE(writer.add(5, 0, 0, 7.0f)) << "more than all";
	EXPECT_TRUE(writer.add(9, 0, 2, 1.0f));
	EXPECT_EQ(writer.nr_steps(), 10u);
	EXPECT_EQ(writer.nr_reported(), 2u);
	ASSERT_TRUE(writer.save(path));
	auto bytes = read_trace_file(path);
	unlink(path.c_str());
	ASSERT_TRUE(bytes);
	EXPECT_EQ(bytes->size(), writer.file_bytes());
	auto trace = AttTrace::parse(std::move(*bytes));
	ASSERT_TRUE(trace) << trace.error().what;
	EXPECT_EQ(trace->layers * 100 + trace->kv_heads * 10 + trace->tokens_per_block, 214u);
	double sum = 0;
	for (uint32_t layer = 0; layer < 2; layer++)
		for (uint32_t t = 0; t < trace->steps; t++)
			for (uint8_t byte : trace->row(layer, 0, t))
				sum += AttTrace::mass(byte);
	EXPECT_NEAR(AttTrace::mass(trace->row(1, 0, 5)[1]), 0.25, 0.01);
	EXPECT_EQ(AttTrace::mass(trace->row(0, 0, 5)[0]), 1);
	EXPECT_EQ(AttTrace::mass(trace->row(0, 0, 9)[2]), 1);
	EXPECT_NEAR(sum, 2.25, 0.01) << "and nothing else";
}

TEST(Recording, WhatIsNotOfTheStepIsRefused)
{
	AttWriter writer(2, 1, 4);
	EXPECT_FALSE(writer.add(5, 2, 0, 1)) << "no such head";
	EXPECT_FALSE(writer.add(5, 0, 2, 1)) << "a block behind the step";
	EXPECT_FALSE(writer.add(AttTrace::max_steps, 0, 0, 1));
	EXPECT_EQ(writer.nr_steps(), 0u);
}
