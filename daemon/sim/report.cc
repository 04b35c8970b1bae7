/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Table, CSV and JSON of a result. */
#include "sim/result.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv::sim {

namespace {

std::string columns_of(const SimResult &result)
{
	std::string text = result.attention ? "hit % / recall % / blocks fetched per head and step"
					    : "block hit % / prefix hit %";
	return result.three_tier ? text + " / ns" : text;
}

std::string cell_text(const SimResult &result, const Cell &cell)
{
	std::string text = result.attention ? fmt::format("{:.1f}/{:.1f}/{:.2f}", cell.hit,
							  cell.useful, cell.fetched)
					    : fmt::format("{:.2f}/{:.2f}", cell.hit, cell.useful);
	return result.three_tier ? text + fmt::format("/{:.0f}", cell.ns) : text;
}

const Row *find(const SimResult &result, const std::string &policy)
{
	for (const Row &row : result.rows)
		if (row.policy == policy)
			return &row;
	return nullptr;
}

} // namespace

std::string to_table(const SimResult &result)
{
	std::string text = fmt::format("# {}\n# {}\n", result.trace, columns_of(result));
	size_t width = result.attention ? 17 : 13;
	if (result.three_tier)
		width += 7;
	text += fmt::format("{:<18}", "policy");
	for (double capacity : result.capacities)
		text += fmt::format(" {:>{}}", fmt::format("{:g} %", capacity), width);
	text += '\n';
	for (const Row &row : result.rows) {
		text += fmt::format("{:<18}", row.policy);
		for (const Cell &cell : row.cells)
			text += fmt::format(" {:>{}}", cell_text(result, cell), width);
		text += '\n';
	}
	return text;
}

std::string to_csv(const SimResult &result)
{
	std::string text =
		result.attention
			? "policy,budget_percent,hit_percent,recall_percent,fetched_per_head_step"
			: "policy,capacity_percent,block_hit_percent,prefix_hit_percent";
	text += result.three_tier ? ",ns\n" : "\n";
	for (const Row &row : result.rows)
		for (size_t i = 0; i < row.cells.size(); i++) {
			const Cell &cell = row.cells[i];
			text += fmt::format("{},{:g},{:.4f},{:.4f}", row.policy,
					    result.capacities[i], cell.hit, cell.useful);
			if (result.attention)
				text += fmt::format(",{:.4f}", cell.fetched);
			if (result.three_tier)
				text += fmt::format(",{:.1f}", cell.ns);
			text += '\n';
		}
	return text;
}

std::string to_json(const SimResult &result)
{
	nlohmann::json rows = nlohmann::json::array();
	for (const Row &row : result.rows) {
		nlohmann::json cells = nlohmann::json::array();
		for (size_t i = 0; i < row.cells.size(); i++) {
			const Cell &cell = row.cells[i];
			nlohmann::json one = {{"capacity_percent", result.capacities[i]},
					      {"hit_percent", cell.hit}};
			one[result.attention ? "recall_percent" : "prefix_hit_percent"] =
				cell.useful;
			if (result.attention)
				one["fetched_per_head_step"] = cell.fetched;
			if (result.three_tier)
				one["ns"] = cell.ns;
			cells.push_back(one);
		}
		rows.push_back({{"policy", row.policy}, {"online", row.online}, {"cells", cells}});
	}
	return nlohmann::json({{"trace", result.trace}, {"policies", rows}}).dump(2) + "\n";
}

std::string gap_summary(const SimResult &result)
{
	const Row *adaptive = find(result, "adaptive");
	const Row *opt = find(result, result.attention ? "opt+pool" : "opt");
	if (!adaptive || !opt || result.rows.size() < 3)
		return "";
	std::string text = fmt::format("{:<18}", "gap to OPT closed");
	double above = 0;
	for (size_t i = 0; i < result.capacities.size(); i++) {
		double best = 0;
		auto value = [&](const Row &row) {
			return result.attention ? row.cells[i].hit : row.cells[i].useful;
		};
		for (const Row &row : result.rows)
			if (row.online && row.policy != "adaptive")
				best = std::max(best, value(row));
		double gap = value(*opt) - best, ours = value(*adaptive) - best;
		above += ours / static_cast<double>(result.capacities.size());
		text += gap > 0.05 ? fmt::format(" {:g} %: {:.0f} %;", result.capacities[i],
						 100 * ours / gap)
				   : fmt::format(" {:g} %: -;", result.capacities[i]);
	}
	return text + fmt::format(" above the best other: {:.2f} points on average\n", above);
}

} // namespace cxlkv::sim
