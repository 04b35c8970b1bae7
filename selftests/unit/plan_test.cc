/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* `cxl-kv plan` against the published figures, to the digits printed there. */
#include "cli/commands.h"
#include "cli/plan_rows.h"
#include "cli/units.h"

#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace cxlkv;

namespace {

const PlanRow *find(const std::vector<PlanRow> &rows, const std::string &section,
		    const std::string &name)
{
	for (const PlanRow &row : rows)
		if (row.section == section && row.name == name)
			return &row;
	return nullptr;
}

/* Text of a row, and a part of its note ("" = any). */
struct Figure {
	const char *section, *name, *text, *note;
};

void expect_figures(const PlanInputs &inputs, std::initializer_list<Figure> figures)
{
	std::vector<PlanRow> rows = plan_rows(inputs);
	for (const Figure &figure : figures) {
		const PlanRow *row = find(rows, figure.section, figure.name);
		ASSERT_NE(row, nullptr) << figure.section << ": " << figure.name;
		EXPECT_EQ(row->text, figure.text) << figure.section << ": " << figure.name;
		EXPECT_NE(row->note.find(figure.note), std::string::npos)
			<< figure.name << ": " << row->note;
	}
}

PlanInputs llama_8b()
{
	PlanInputs in;
	in.shape = {32, 8, 32, 128, 2};
	return in;
}

} // namespace

TEST(Plan, KvSizeOf70B)
{
	expect_figures(
		{}, {{"KV size", "a token", "327,680 B", "320 KiB"},
		     {"KV size", "4K tokens", "1.3 GB", "0.7 % of 192 GB"},
		     {"KV size", "32K tokens", "10.7 GB", "5.6 %"},
		     {"KV size", "128K tokens", "43 GB", "22 %"},
		     {"KV size", "512K tokens", "172 GB", "90 %"},
		     {"KV size", "1M tokens", "344 GB", "179 %"},
		     {"KV size", "multi-head attention", "8.0 times", "64 KV heads instead of 8"},
		     {"KV size", "multi-query attention", "8 times less", "1 KV head"}});
	/* Unrounded the 512K context fills 89.5 % of the card. */
	EXPECT_NEAR(KvShape{}.bytes(524288) / 192e9 * 100, 89.5, 0.05);
}

TEST(Plan, KvSizeOf70BWithOneByte)
{
	PlanInputs in;
	in.shape.elem_bytes = 1;
	in.context_tokens = 20000;
	expect_figures(in, {{"KV size", "a token", "163,840 B", "160 KiB"},
			    {"KV size", "20,000 tokens", "3.3 GB", ""}});
	EXPECT_NEAR(in.shape.bytes(20000) / 1e9, 3.28, 0.005);
	EXPECT_DOUBLE_EQ(in.fetch_bytes_per_token * 20000 / 1e9, 3.2); /* the source's rounding */
}

TEST(Plan, KvSizeOf8B)
{
	PlanInputs in = llama_8b();
	in.context_tokens = 32768;
	in.users = 100;
	expect_figures(in, {{"KV size", "a token", "131,072 B", "128 KiB"},
			    {"KV size", "32K tokens", "4.3 GB", "4 GiB;"},
			    {"KV size", "100 contexts", "429 GB", "400 GiB"}});
	in.context_tokens = 2048;
	expect_figures(in, {{"KV size", "2K tokens", "0.3 GB", "256 MiB"}});
	in.context_tokens = 128000;
	expect_figures(in,
		       {{"KV size", "125K tokens", "16.8 GB", "15.62 GiB"}}); /* "about 16 GiB" */
	in.shape.kv_heads = 32;
	in.context_tokens = 32768;
	expect_figures(in, {{"KV size", "32K tokens", "17.2 GB", "16 GiB"}});
}

TEST(Plan, Formats)
{
	expect_figures({}, {{"formats", "FP16", "43 GB", ""},
			    {"formats", "FP8", "21.5 GB", "< 0.1 %"},
			    {"formats", "INT8", "21.5 GB", "< 0.5 %"},
			    {"formats", "INT4", "10.8 GB", "about 1 %"},
			    {"formats", "FP16 to INT8", "48 GB/s", "claimed"},
			    {"formats", "FP16 to INT4", "32 GB/s", "claimed"},
			    {"formats", "INT8 to FP16", "64 GB/s", "claimed"}});
}

TEST(Plan, CapacityWall)
{
	expect_figures(
		{}, {{"capacity", "needed", "489 GB", "140 weights + 8 users x 43 + 5"},
		     {"capacity", "of the card", "2.5 times", "192 GB"},
		     {"capacity", "token metadata", "640 MiB", "640 heads x 131,072 tokens x 8 B"},
		     {"capacity", "of the KV cache", "1.56 %", ""},
		     {"capacity", "hot set a user", "2.31 GB", "37 GB for 16 users"}});
	/* A context of less KV has its share of it: 17.2 of 43 GB, then a quarter of that. */
	PlanInputs in = llama_8b();
	expect_figures(in, {{"capacity", "hot set a user", "0.93 GB", "5.4 % of a context"}});
	in.context_tokens = 32768;
	expect_figures(in, {{"capacity", "hot set a user", "0.23 GB", "as in the example"}});
}

TEST(Plan, Tiers)
{
	expect_figures({}, {{"tiers", "hot", "192 GB", "8 TB/s"},
			    {"tiers", "warm", "1 TB", "4 x 256 GB, about 200 ns"},
			    {"tiers", "warm links", "256 GB/s", "4 x 64 GB/s"},
			    {"tiers", "inside an endpoint", "358.4 GB/s", "8 x 44.8 GB/s"},
			    {"tiers", "cold", "16 TB", "4 x 4 TB, about 25 µs, about 14 GB/s"},
			    {"tiers", "all", "17 TB", ""}});
}

TEST(Plan, Latency)
{
	expect_figures(
		{}, {{"latency", "CXL.mem read", "200 ns", "15 + 20 + 25 + 40 + 80 + 20"},
		     {"latency", "PCIe DMA", "13.00 µs",
		      "4.00 + 2.50 + 1.50 + 0.70 + 0.10 + 0.20 + 4.00"},
		     {"latency", "DMA / CXL", "65 times", ""},
		     {"latency", "effective at 97 %", "177 ns", "75 ns of it for 0.3 % on flash"},
		     {"latency", "effective at 93 %", "281 ns", ""},
		     {"latency", "effective at 87 %", "435 ns", ""},
		     {"latency", "effective at 80 %", "616 ns", ""},
		     {"latency", "effective at 72 %", "822 ns", ""},
		     {"latency", "effective at 60 %", "1,132 ns", ""},
		     {"latency", "without tiers", "2,035 ns", "85 % at 100 ns"},
		     {"latency", "gain at 97 %", "11.5 times", ""}});
}

TEST(Plan, Bandwidth)
{
	expect_figures({}, {{"bandwidth", "streaming a layer", "2.22 GB", "0.302 + 1.410 + 0.512"},
			    {"bandwidth", "its time", "34.7 ms", "over 64 GB/s"},
			    {"bandwidth", "steady state", "4.5 %", "11.4 of 256 GB/s"},
			    {"bandwidth", "admission, 1 endpoint", "672 ms", "43 GB"},
			    {"bandwidth", "admission, 2 endpoints", "336 ms", ""},
			    {"bandwidth", "admission, 3 endpoints", "224 ms", ""},
			    {"bandwidth", "admission, 4 endpoints", "168 ms", ""},
			    {"bandwidth", "4 GiB over a link", "67 ms", ""},
			    {"bandwidth", "20 tokens/s x 4 GiB", "80 GiB/s", ""}});
}

TEST(Plan, FetchOrRecompute)
{
	const char *section = "fetch or recompute";
	expect_figures({},
		       {{section, "1,000 tokens, recompute", "20 ms", "160 MB"},
			{section, "1,000 tokens, 55 GB/s", "2.9 ms", "6.9 times cheaper: fetch"},
			{section, "1,000 tokens, 7 GB/s", "23 ms", "recompute"},
			{section, "1,000 tokens, 2 GB/s", "80 ms", "recompute"},
			{section, "20,000 tokens, recompute", "400 ms", "3,200 MB"},
			{section, "20,000 tokens, 55 GB/s", "58 ms", "fetch"},
			{section, "20,000 tokens, 7 GB/s", "457 ms", "recompute"},
			{section, "20,000 tokens, 2 GB/s", "1,600 ms", "recompute"},
			{section, "20,000 tokens, 900 GB/s", "3.6 ms", "111 times"},
			{section, "20,000 tokens, 50 GB/s", "64 ms", "fetch"},
			{section, "20,000 tokens, 3 GB/s", "1,067 ms", "recompute"}});
	PlanInputs exact;
	exact.fetch_bytes_per_token = 163840;
	expect_figures(exact, {{section, "1,000 tokens, 55 GB/s", "3.0 ms", ""},
			       {section, "1,000 tokens, 7 GB/s", "23 ms", ""},
			       {section, "1,000 tokens, 2 GB/s", "82 ms", ""},
			       {section, "20,000 tokens, 55 GB/s", "60 ms", ""},
			       {section, "20,000 tokens, 7 GB/s", "468 ms", ""},
			       {section, "20,000 tokens, 2 GB/s", "1,638 ms", ""}});
	/* The other form of the prefill's time: 2 x parameters x tokens / FLOP/s. */
	PlanInputs by_flops;
	by_flops.flops_per_s = 7e15;
	expect_figures(by_flops, {{section, "1,000 tokens, recompute", "20 ms", ""}});
	/* Between once and the margin it depends on what the caller wants. */
	PlanInputs near;
	near.prefill_tokens_per_s = 100000;
	near.margin = 4;
	expect_figures(
		near, {{section, "1,000 tokens, 55 GB/s", "2.9 ms", "fetch where latency counts"}});
}

TEST(Plan, PowerAndCost)
{
	expect_figures(
		{}, {{"power", "an endpoint", "80 W", "40 + 15 + 12 + 8 + 5"},
		     {"power", "its peak", "123 W", "60 + 25 + 18 + 12 + 8"},
		     {"power", "all endpoints", "320 W", ""},
		     {"power", "wall power", "51 % less", "1.9 kW against 3.9"},
		     {"cost", "CapEx", "160,000 USD", "105,000 + 55,000"},
		     {"cost", "CapEx, tiered", "103,000 USD", "35,000 + 40,000 + 8,000 + 20,000"},
		     {"cost", "CapEx saved", "57,000 USD", "36 % less"},
		     {"cost", "energy", "17,219 USD", "1.4 PUE x 8,760 h x 3 years x 0.12 USD"},
		     {"cost", "energy, tiered", "8,389 USD", ""},
		     {"cost", "TCO", "177,219 USD", ""},
		     {"cost", "TCO, tiered", "111,389 USD", ""},
		     {"cost", "TCO saved", "65,830 USD", "37 % less"}});
}

TEST(Plan, EveryLineSaysModelAndFits)
{
	std::istringstream lines(plan_text(plan_rows({})) + plan_text(plan_rows(llama_8b())));
	for (std::string line; std::getline(lines, line);) {
		EXPECT_EQ(line.rfind("model", 0), 0u) << line;
		EXPECT_LE(columns(line), 80u) << line;
	}
	for (const auto &row : plan_json(plan_rows({})))
		EXPECT_EQ(row["source"], "model");
}

TEST(Plan, MeasuredFiguresTakeThePlaceOfTheExamples)
{
	auto figures = nlohmann::json::parse(R"({"version":1,
		"nodes":[{"node":0,"tier":"hot","read_ns":90,"copy_MBps":20000},
			 {"node":1,"tier":"hot","read_ns":95,"copy_MBps":21000},
			 {"node":2,"tier":"warm","read_ns":250.4,"copy_MBps":9000}],
		"cold":{"read_MBps":3000,"block_read_p50_ns":80000}})");
	PlanInputs inputs;
	auto used = use_measured(figures, inputs);
	ASSERT_TRUE(used) << used.error().what;
	EXPECT_EQ(inputs.latency.hot_ns, 90);
	EXPECT_EQ(inputs.latency.warm_ns, 250.4);
	EXPECT_EQ(inputs.latency.cold_ns, 80000);
	EXPECT_EQ(inputs.fetch_GBps, (std::vector<double>{21, 9, 3}));
	std::vector<PlanRow> rows = plan_rows(inputs);
	const PlanRow *row = find(rows, "tiers", "warm, read");
	ASSERT_TRUE(row);
	EXPECT_EQ(row->source, "measured");
	EXPECT_EQ(row->text, "250 ns");
	row = find(rows, "fetch or recompute", "1,000 tokens, 3 GB/s");
	ASSERT_TRUE(row);
	EXPECT_EQ(row->source, "model") << "a time that is computed stays a model";
	/* Nothing of a tier that is not there is made up. */
	figures["nodes"].erase(2);
	figures.erase("cold");
	PlanInputs without;
	ASSERT_TRUE(use_measured(figures, without));
	EXPECT_EQ(without.latency.warm_ns, PlanInputs().latency.warm_ns);
	EXPECT_FALSE(find(without.measured, "tiers", "cold, read"));
	for (const char *wrong : {"[]", "null", "{}", R"({"version":2,"nodes":[]})",
				  R"({"version":1,"nodes":[]})", R"({"version":1,"nodes":[7]})",
				  R"({"version":1,"nodes":[{"tier":"hot","read_ns":90}]})",
				  R"({"version":1,"nodes":[],"cold":{"block_read_p50_ns":90}})"}) {
		PlanInputs unused;
		EXPECT_FALSE(use_measured(nlohmann::json::parse(wrong), unused)) << wrong;
	}
}

class PlanConfig : public testing::Test {
protected:
	/* Exit status of `cxl-kv plan --model FILE` with the given contents; what it said is kept.
	 */
	int plan(const std::string &contents)
	{
		std::string path = testing::TempDir() + "cxl-kv-plan-config.json";
		std::ofstream(path) << contents;
		std::string model = "--model=" + path, json = "-j", name = "plan";
		char *argv[] = {name.data(), model.data(), json.data(), nullptr};
		testing::internal::CaptureStdout();
		testing::internal::CaptureStderr();
		int exit = cmd_plan(3, argv);
		fflush(nullptr);
		out = testing::internal::GetCapturedStdout();
		err = testing::internal::GetCapturedStderr();
		unlink(path.c_str());
		return exit;
	}
	std::string out, err;
};

TEST_F(PlanConfig, IsReadAsHuggingFaceWritesIt)
{
	ASSERT_EQ(plan(R"({"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
		"hidden_size":4096,"torch_dtype":"bfloat16","rope_theta":500000.0})"),
		  kExitOk)
		<< err;
	EXPECT_EQ(nlohmann::json::parse(out)[0]["value"], 131072);
	/* Without num_key_value_heads every head is kept; head_dim wins over hidden_size / heads.
	 */
	ASSERT_EQ(
		plan(R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":16,"hidden_size":4096})"),
		kExitOk);
	EXPECT_EQ(nlohmann::json::parse(out)[0]["value"], 2 * 2 * 4 * 16 * 2);
	/* As newer versions write it, and a model that sees too. */
	ASSERT_EQ(
		plan(R"({"text_config":{"num_hidden_layers":2,"num_attention_heads":4,"hidden_size":64,
		"dtype":"float32"}})"),
		kExitOk)
		<< err;
	EXPECT_EQ(nlohmann::json::parse(out)[0]["value"], 2 * 2 * 4 * 16 * 4);
}

TEST_F(PlanConfig, WrongOnesAreRefusedByName)
{
	for (const char *wrong :
	     {"", "[]", "{", "{}", R"({"num_hidden_layers":2})",
	      R"({"num_hidden_layers":0,"num_attention_heads":4,"head_dim":16})",
	      R"({"num_hidden_layers":-1,"num_attention_heads":4,"head_dim":16})",
	      R"({"num_hidden_layers":2.5,"num_attention_heads":4,"head_dim":16})",
	      R"({"num_hidden_layers":99999999,"num_attention_heads":4,"head_dim":16})",
	      R"({"num_hidden_layers":2,"num_attention_heads":4,"hidden_size":66})",
	      R"({"num_hidden_layers":2,"num_attention_heads":4,"hidden_size":1})",
	      R"({"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":8,"head_dim":16})",
	      R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":16,"dtype":"float5"})",
	      R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":16,"torch_dtype":"float5"})"}) {
		EXPECT_EQ(plan(wrong), kExitFailure) << wrong;
		EXPECT_NE(err.find("cxl-kv-plan-config.json"), std::string::npos) << err;
	}
}

/* Where it was printed, or copied, the stack ended. */
TEST_F(PlanConfig, IsNotReadWhereItIsNestedTooDeep)
{
	const std::string deep = std::string(300000, '[') + std::string(300000, ']');
	for (const std::string &wrong : {deep, R"({"num_hidden_layers":)" + deep + "}",
					 R"({"text_config":{"a":)" + deep + "}}",
					 R"({"a\"":"]]","num_hidden_layers":)" + deep + "}"}) {
		EXPECT_EQ(plan(wrong), kExitFailure);
		EXPECT_NE(err.find("cxl-kv-plan-config.json: JSON nested more than 64 deep"),
			  std::string::npos)
			<< err.substr(0, 200);
	}
	/* Brackets within a string nest nothing. */
	EXPECT_EQ(plan(R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":16,"a":")" +
		       std::string(1000, '[') + R"(\"[[\\"})"),
		  kExitOk)
		<< err.substr(0, 200);
}
