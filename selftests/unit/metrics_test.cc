/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The metrics text is well-formed, and docs/metrics.md lists exactly its names and types. */
#include "cli/metrics.h"

#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

using namespace cxlkv;
using nlohmann::json;

namespace {

json list()
{
	return json::parse(
		R"({"arenas":[{"arena":3,"name":"a\"b\\c\nd\u0007","bytes":{"hot":4096},"hints":7,"bad_hints":1}]})");
}

/* Name to type, as the text declares them; fails where the text breaks the format's rules. */
std::map<std::string, std::string> parse(const std::string &text)
{
	static const std::regex sample(
		R"re(([a-z_]+)(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? ([0-9.e+-]+))re");
	static const std::regex part_of_histogram("(.*)_(bucket|sum|count)");
	std::map<std::string, std::string> types;
	std::set<std::string> seen;
	std::istringstream lines(text);
	std::smatch match;

	for (std::string line; std::getline(lines, line);) {
		if (line.rfind("# HELP ", 0) == 0)
			continue;
		if (line.rfind("# TYPE ", 0) == 0) {
			std::string name = line.substr(7, line.find(' ', 7) - 7);
			EXPECT_FALSE(types.contains(name)) << name << " is declared twice";
			types[name] = line.substr(line.find(' ', 7) + 1);
			continue;
		}
		if (!std::regex_match(line, match, sample)) {
			ADD_FAILURE() << "no sample: " << line;
			continue;
		}
		std::string name = match[1];
		if (std::smatch whole; std::regex_match(name, whole, part_of_histogram) &&
				       types[whole[1]] == "histogram")
			name = whole[1];
		EXPECT_TRUE(types.contains(name)) << line << " comes before its type";
		EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second)
			<< line << " is there twice";
		EXPECT_EQ(types[name] == "counter", name.ends_with("_total")) << line;
	}
	return types;
}

} // namespace

TEST(Metrics, AreWhatTheDocumentLists)
{
	std::map<std::string, std::string> documented;
	std::ifstream in("docs/metrics.md");
	std::smatch match;
	for (std::string line; std::getline(in, line);)
		if (std::regex_search(line, match, std::regex(R"(^\| `([a-z_]+)` \| ([a-z]+) \|)")))
			documented[match[1]] = match[2];
	ASSERT_GT(documented.size(), 20u) << "run from the top of the repository";
	EXPECT_EQ(parse(metrics_text(json::object(), list())), documented);
}

TEST(Metrics, CarryTheDaemonsNumbers)
{
	json status = json::parse(
		R"({"version":"0.1.0","mode":"native","preset":"paper","tiers":{"hot":{"bytes":123}},
		"restore":{"p99_ns":1500000},
		"times":{"stall":{"at_most_ns":[[10000,2],[25000,3]],"count":4,"sum_ns":2500000}},"mover":{"demote":{"moved":9}}})");
	std::string text = metrics_text(status, list());

	for (const char *line :
	     {"cxl_kv_up 1\n", "cxl_kv_tier_bytes{tier=\"hot\"} 123\n",
	      "cxl_kv_stall_seconds_bucket{le=\"2.5e-05\"} 3\n",
	      "cxl_kv_stall_seconds_bucket{le=\"+Inf\"} 4\n", "cxl_kv_stall_seconds_sum 0.0025\n",
	      "cxl_kv_restore_seconds{percentile=\"99\"} 0.0015\n",
	      "cxl_kv_moves_total{direction=\"demote\",result=\"moved\"} 9\n",
	      "cxl_kv_info{version=\"0.1.0\",mode=\"native\",preset=\"paper\"} 1\n",
	      "cxl_kv_arena_bytes{arena=\"3\",name=\"a\\\"b\\\\c\\nd\",tier=\"hot\"} 4096\n",
	      "cxl_kv_hints_total{arena=\"3\",name=\"a\\\"b\\\\c\\nd\",result=\"refused\"} 1\n"})
		EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(Metrics, WithoutADaemonOnlyUpIsThere)
{
	EXPECT_EQ(parse(metrics_text_down()).size(), 1u);
	EXPECT_NE(metrics_text_down().find("cxl_kv_up 0\n"), std::string::npos);
}

TEST(Metrics, AnswersOfAnotherShapeAreNoCrash)
{
	for (const char *odd : {"null", "[]", R"({"arenas":{}})", R"({"arenas":[1]})"})
		parse(metrics_text(json::parse(odd), json::parse(odd)));
}
