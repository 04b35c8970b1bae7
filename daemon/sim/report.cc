/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Table, CSV and JSON of a result. */
#include "sim/result.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv::sim {

namespace {

/* Points between LRU and OPT from which on a policy has room to show what it can. */
constexpr double wide_gap = 10;

std::string columns_of(const SimResult &result)
{
	std::string text = result.attention
				   ? "hit % / recall % / blocks fetched per head and step"
				   : "block hit % / prefix hit % / blocks fetched per request";
	return result.tiers ? text + " / ns" : text;
}

std::string cell_text(const SimResult &result, const Cell &cell)
{
	std::string text =
		result.attention
			? fmt::format("{:.1f}/{:.1f}/{:.2f}", cell.hit, cell.useful, cell.fetched)
			: fmt::format("{:.2f}/{:.2f}/{:.1f}", cell.hit, cell.useful, cell.fetched);
	return result.tiers ? text + fmt::format("/{:.0f}", cell.ns) : text;
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
	size_t width = 17;
	if (result.tiers)
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
	for (const std::string &note : result.notes)
		text += "# " + note + "\n";
	return text;
}

std::string to_csv(const SimResult &result)
{
	std::string text =
		result.attention
			? "policy,budget_percent,hit_percent,recall_percent,fetched_per_head_step"
			: "policy,capacity_percent,block_hit_percent,prefix_hit_percent,fetched_"
			  "per_request";
	text += result.tiers ? ",ns\n" : "\n";
	for (const Row &row : result.rows)
		for (size_t i = 0; i < row.cells.size(); i++) {
			const Cell &cell = row.cells[i];
			text += fmt::format("{},{:g},{:.4f},{:.4f},{:.4f}", row.policy,
					    result.capacities[i], cell.hit, cell.useful,
					    cell.fetched);
			if (result.tiers)
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
			one[result.attention ? "fetched_per_head_step" : "fetched_per_request"] =
				cell.fetched;
			if (result.tiers)
				one["ns"] = cell.ns;
			cells.push_back(one);
		}
		rows.push_back({{"policy", row.policy}, {"online", row.online}, {"cells", cells}});
	}
	nlohmann::json out = {{"trace", result.trace}, {"policies", rows}};
	if (result.tiers)
		out["latencies"] = {{"source", result.tiers->source},
				    {"hot_ns", result.tiers->latency.hot_ns},
				    {"warm_ns", result.tiers->latency.warm_ns},
				    {"cold_ns", result.tiers->latency.cold_ns}};
	if (!result.notes.empty())
		out["notes"] = result.notes;
	return out.dump(2) + "\n";
}

std::string gap_summary(const SimResult &result)
{
	const Row *adaptive = find(result, "adaptive");
	const Row *lru = find(result, result.attention ? "lru+head" : "lru");
	const Row *opt = find(result, result.attention ? "opt+pool" : "opt");
	if (!adaptive || !lru || !opt)
		return "";
	std::string text;
	double above = 0, nr_wide = 0;
	for (size_t i = 0; i < result.capacities.size(); i++) {
		auto value = [&](const Row &row) {
			return result.attention ? row.cells[i].hit : row.cells[i].useful;
		};
		const Row *best = lru;
		for (const Row &row : result.rows)
			if (row.online && &row != adaptive && value(row) > value(*best))
				best = &row;
		double gap = value(*opt) - value(*best), ours = value(*adaptive) - value(*best);
		bool wide = value(*opt) - value(*lru) > wide_gap;
		text += fmt::format("# {:>5g} %: adaptive {:+.2f} points to the best other ({})",
				    result.capacities[i], ours, best->policy);
		/* That of heads has a budget for each layer, which one pool for all can beat. */
		if (gap > 0.05 && ours <= gap)
			text += fmt::format(", {:.0f} % of the gap to OPT closed",
					    100 * ours / gap);
		text += wide ? " *\n" : "\n";
		above += wide ? ours : 0;
		nr_wide += wide;
	}
	if (nr_wide)
		text += fmt::format("# * OPT is more than {:g} points above LRU; there adaptive is "
				    "{:+.2f} on average\n",
				    wide_gap, above / nr_wide);
	return text;
}

} // namespace cxlkv::sim
