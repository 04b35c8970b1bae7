/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The frame of `cxl-kv top`: what it shows, that it fits, and that no answer breaks it. */
#include "cli/top_view.h"
#include "cli/units.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <sstream>

using namespace cxlkv;
using nlohmann::json;

namespace {

json heads_of(unsigned layers, unsigned kv_heads)
{
	json heads = json::array();
	for (unsigned i = 0; i < layers * kv_heads; i++)
		heads.push_back({{"ema_sum", i % kv_heads == 1 ? 8.0 : 0.0},
				 {"hot", 10},
				 {"warm", 0},
				 {"cold", 30}});
	return json::parse(
		json({{"layers", layers}, {"kv_heads", kv_heads}, {"heads", heads}}).dump());
}

TopSample sample(double at_s, unsigned spilled_bytes)
{
	TopSample s;
	s.at_s = at_s;
	s.status = json::parse(
		R"({"version":"0.1.0","mode":"native","preset":"paper","uptime_s":60,"arenas":1,
		"tiers":{"hot":{"blocks":5,"bytes":5242880,"limit_bytes":4194304},"warm":{},
		"cold":{"blocks":7,"bytes":7,"limit_bytes":100}},
		"restore":{"p50_ns":148000},"lost_blocks":0})");
	s.status["spill"]["spilled_bytes"] = spilled_bytes;
	s.arena = json::parse(R"({"arena":3,"name":"engine\u001b[2J","pid":99})");
	s.heads = heads_of(80, 8);
	return s;
}

std::vector<std::string> lines_of(const std::string &text)
{
	std::vector<std::string> lines;
	std::istringstream in(text);
	for (std::string line; std::getline(in, line);)
		lines.push_back(line);
	return lines;
}

} // namespace

TEST(HeatMap, FoldsToTheMeanOfWhatACellCovers)
{
	json heads = json::parse(R"({"layers":4,"kv_heads":1,"heads":[
		{"ema_sum":0,"hot":1},{"ema_sum":1,"hot":1},{"ema_sum":1,"hot":1},{"ema_sum":1,"hot":1}]})");
	HeatMap map(heads, HeatOf::Score, 2, 10);

	ASSERT_EQ(map.width(), 2u);
	ASSERT_EQ(map.height(), 1u);
	EXPECT_EQ(map.layers_per_cell(), 2u);
	EXPECT_DOUBLE_EQ(map.value(0, 0), 0.5);
	EXPECT_DOUBLE_EQ(map.value(1, 0), 1.0);
	EXPECT_EQ(map.level(1, 0), HeatMap::kNrLevels - 1);
}

TEST(HeatMap, LayersGoAcrossAndHeadsDown)
{
	HeatMap map(heads_of(5, 3), HeatOf::Score, 80, 20);

	ASSERT_EQ(map.width(), 5u);
	ASSERT_EQ(map.height(), 3u);
	for (size_t x = 0; x < 5; x++) {
		EXPECT_EQ(map.level(x, 0), 0u);
		EXPECT_EQ(map.level(x, 1), HeatMap::kNrLevels - 1);
	}
	HeatMap cold(heads_of(5, 3), HeatOf::Cold, 80, 20);
	EXPECT_DOUBLE_EQ(cold.value(4, 2), 0.75);
}

TEST(HeatMap, CountsThatDoNotFitAreNoMap)
{
	for (const char *odd : {"{}", "[]", R"({"layers":1,"kv_heads":1})",
				R"({"layers":2,"kv_heads":2,"heads":[{}]})",
				R"({"layers":0,"kv_heads":0,"heads":[]})",
				R"({"layers":18446744073709551615,"kv_heads":2,"heads":[]})",
				R"({"layers":-1,"kv_heads":2,"heads":7})"})
		EXPECT_TRUE(HeatMap(json::parse(odd), HeatOf::Score, 80, 20).empty()) << odd;
	EXPECT_TRUE(HeatMap(heads_of(2, 2), HeatOf::Score, 0, 0).empty());
}

TEST(Top, FitsEveryTerminal)
{
	for (size_t width : {1u, 20u, 80u, 200u})
		for (size_t height : {1u, 10u, 24u, 60u}) {
			auto lines = lines_of(plain(top_frame(sample(0, 0), sample(1, 1000),
							      HeatOf::Score, {width, height})));
			EXPECT_LE(lines.size(), height);
			for (const std::string &line : lines)
				EXPECT_LE(columns(line), width) << line;
		}
}

TEST(Top, OneScreenHasTiersRatesAndTheWholeMap)
{
	std::string text = plain(
		top_frame(sample(10, 1000000), sample(12, 26000000), HeatOf::Score, {80, 24}));

	for (const char *part :
	     {"5.00 MiB of 4.00 MiB", "125 %", "warm  none", "12.5 MB/s", "p50 148 µs", "arena 3",
	      "pid 99", "layers 0 to 79", "   1 @@@", "   7"})
		EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
	EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Top, NoRateWithoutTwoSamplesNorAcrossARestart)
{
	TopSample only = sample(10, 1000000);
	std::string first = plain(top_frame(only, only, HeatOf::Score, {80, 24}));
	EXPECT_EQ(first.find("MB/s"), std::string::npos) << first;
	std::string restarted =
		plain(top_frame(sample(10, 26000000), sample(12, 1000), HeatOf::Score, {80, 24}));
	EXPECT_NE(restarted.find("spill        0 B/s"), std::string::npos) << restarted;
}

TEST(Top, AnswersOfAnotherShapeAreNoCrash)
{
	for (const char *odd : {"null", "[]", "{}", "5", R"({"tiers":[]})"}) {
		TopSample s;
		s.status = s.heads = json::parse(odd);
		s.arena = json::object();
		EXPECT_FALSE(top_frame(s, s, HeatOf::Hot, {80, 24}).empty()) << odd;
	}
}
