/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The heat map over time, as text and as SVG. */
#include "cli/heat_report.h"
#include "cli/units.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sstream>

using namespace cxlkv;
using nlohmann::json;

namespace {

/* heads() answers whose mean score is score(layer, head). */
template <typename Score> json heads_of(uint32_t layers, uint32_t kv_heads, Score score)
{
	json heads = json::array();
	for (uint32_t layer = 0; layer < layers; layer++)
		for (uint32_t head = 0; head < kv_heads; head++)
			heads.push_back({{"ema_sum", 10 * score(layer, head)},
					 {"hot", 5},
					 {"warm", 5},
					 {"cold", 10}});
	return {{"layers", layers}, {"kv_heads", kv_heads}, {"heads", heads}};
}

std::vector<std::string> lines_of(const std::string &text)
{
	std::vector<std::string> lines;
	std::istringstream in(text);
	for (std::string line; std::getline(in, line);)
		lines.push_back(line);
	return lines;
}

size_t count(const std::string &text, const std::string &what)
{
	size_t nr = 0;
	for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
		nr++;
	return nr;
}

TEST(Report, TheWarmestLayerAndMomentAreTheDarkest)
{
	HeatReport report{"arena 1, test", HeatOf::Score, {}};
	for (int i = 0; i < 4; i++)
		report.samples.push_back({i * 0.5, heads_of(3, 2, [&](uint32_t layer, uint32_t) {
						  return layer == 1 && i == 2 ? 0.8 : 0.0;
					  })});
	auto lines = lines_of(heat_text(report));
	ASSERT_GE(lines.size(), 6u);
	EXPECT_EQ(lines[1], "     0 |    |");
	EXPECT_EQ(lines[2], "     1 |  @ |");
	EXPECT_EQ(lines[3], "     2 |    |");
	EXPECT_NE(lines[0].find("= 0 to 0.8"), std::string::npos) << lines[0];
}

TEST(Report, AnySizeFitsATerminal)
{
	HeatReport report{std::string(60, 'x'), HeatOf::Hot, {}};
	for (int i = 0; i < 500; i++)
		report.samples.push_back(
			{i * 1.0, heads_of(126, 40, [](uint32_t, uint32_t) { return 0.5; })});
	auto lines = lines_of(heat_text(report));
	EXPECT_LE(lines.size(), 80u);
	for (size_t i = 1; i < lines.size(); i++)
		EXPECT_LE(columns(lines[i]), 80u) << lines[i];
	/* Half of the memory blocks are hot, a quarter of all. */
	EXPECT_NE(lines[1].find('-'), std::string::npos) << lines[1];
}

TEST(Report, SvgHasEveryHeadAndEscapesWhatAClientCalledItself)
{
	HeatReport report{"<b>&\x1b[31m", HeatOf::Score, {}};
	for (int i = 0; i < 3; i++)
		report.samples.push_back({i * 1.0, heads_of(4, 8, [](uint32_t l, uint32_t h) {
						  return l * 0.1 + h * 0.01;
					  })});
	std::string svg = heat_svg(report);
	/* Background, 40 of the legend, 4 layers x 3 moments, 3 pictures of 4 x 8. */
	EXPECT_EQ(count(svg, "<rect"), 1u + 40 + 12 + 3 * 32);
	EXPECT_EQ(svg.find("<b>"), std::string::npos);
	EXPECT_EQ(svg.find('\x1b'), std::string::npos);
	EXPECT_NE(svg.find("&lt;b&gt;&amp;"), std::string::npos);
}

TEST(Report, AnswersThatDoNotFitAreNoPicture)
{
	HeatReport report{
		"a", HeatOf::Score, {{0, {{"layers", 2}, {"kv_heads", 2}, {"heads", {1}}}}}};
	EXPECT_EQ(heat_text(report), "no heads to show\n");
	EXPECT_NE(heat_svg(report).find("no heads to show"), std::string::npos);
}

} // namespace
