/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/run.h"

#include "sim/replay.h"

#include <algorithm>
#include <fmt/format.h>

namespace cxlkv::sim {

namespace {

/* More than all blocks is all of them. */
uint32_t blocks_of(const BlockTrace &trace, double percent)
{
	return static_cast<uint32_t>(
		std::clamp(percent / 100 * trace.nr_unique(), 1.0, double(trace.nr_unique())));
}

/* hot: share of hits; hit(factor): the same with factor times the capacity. */
template <typename Hit> double latency(const ThreeTiers &tiers, double hot, Hit hit)
{
	if (tiers.paper_split)
		return tiers.latency.effective_ns(hot);
	double warm = std::max(0.0, hit(1 + tiers.warm_ratio) - hot);
	LatencyModel latency = tiers.latency;
	latency.cold_share = hot < 1 ? 1 - warm / (1 - hot) : 0;
	return latency.effective_ns(hot);
}

/* Replays for a cell. */
uint64_t nr_replays(const std::optional<ThreeTiers> &tiers)
{
	return tiers && !tiers->paper_split ? 2 : 1;
}

Cell run_cell(const BlockTrace &trace, const CachePolicy &policy, double percent,
	      const std::optional<ThreeTiers> &tiers, Meter &meter)
{
	auto run = [&](double factor) {
		auto cache = policy.make({trace, blocks_of(trace, percent * factor)});
		return replay(trace, *cache, [&](uint64_t accesses) { meter.add(accesses); });
	};
	Hits hits = run(1);
	Cell cell{hits.block_percent(), hits.prefix_percent(),
		  double(hits.nr_accesses - hits.nr_block_hits) / trace.nr_requests(), 0};
	if (tiers)
		cell.ns = latency(*tiers, cell.useful / 100, [&](double factor) {
			return run(factor).prefix_percent() / 100;
		});
	return cell;
}

Cell run_cell(const std::vector<AttTrace> &traces, const AttPolicy &policy, const Access &access,
	      double percent, const std::optional<ThreeTiers> &tiers, Meter &meter)
{
	auto run = [&](double factor) {
		AttHits hits;
		for (const AttTrace &trace : traces) {
			double budget = std::min(1.0, percent / 100 * factor);
			replay_att(trace, policy, access, budget, hits);
			meter.add(1);
		}
		return hits;
	};
	AttHits hits = run(1);
	Cell cell{hits.hit_percent(), hits.recall_percent(), hits.fetched_per_head_step(), 0};
	if (tiers)
		cell.ns = latency(*tiers, cell.hit / 100,
				  [&](double factor) { return run(factor).hit_percent() / 100; });
	return cell;
}

/* A row a policy, a cell a capacity. */
template <typename Policy, typename Run>
void fill(SimResult &result, const std::vector<const Policy *> &policies, Run run)
{
	size_t nr = result.capacities.size();
	for (const Policy *policy : policies)
		result.rows.push_back({policy->name, policy->online, std::vector<Cell>(nr)});
	run_jobs(policies.size() * nr, [&](size_t i) {
		result.rows[i / nr].cells[i % nr] =
			run(*policies[i / nr], result.capacities[i % nr]);
	});
}

} // namespace

SimResult run_blocks(const BlockTrace &trace, const std::vector<const CachePolicy *> &policies,
		     const std::vector<double> &capacities, const std::optional<ThreeTiers> &tiers,
		     const Progress &progress)
{
	SimResult result;
	result.trace = fmt::format("{} requests, {} accesses, {} distinct blocks",
				   trace.nr_requests(), trace.nr_accesses(), trace.nr_unique());
	result.capacities = capacities;
	result.tiers = tiers;
	Meter meter(policies.size() * capacities.size() * trace.nr_accesses() * nr_replays(tiers),
		    progress);
	fill(result, policies, [&](const CachePolicy &policy, double percent) {
		return run_cell(trace, policy, percent, tiers, meter);
	});
	return result;
}

SimResult run_att(const std::vector<AttTrace> &traces,
		  const std::vector<const AttPolicy *> &policies, const Access &access,
		  const std::vector<double> &budgets, const std::optional<ThreeTiers> &tiers,
		  const Progress &progress)
{
	SimResult result;
	result.trace = fmt::format("{} sequences, access {}", traces.size(),
				   access.top ? fmt::format("top:{}", access.top)
					      : fmt::format("thr:{:g}", access.threshold));
	result.attention = true;
	result.capacities = budgets;
	result.tiers = tiers;
	Meter meter(policies.size() * budgets.size() * traces.size() * nr_replays(tiers), progress);
	fill(result, policies, [&](const AttPolicy &policy, double percent) {
		return run_cell(traces, policy, access, percent, tiers, meter);
	});
	return result;
}

} // namespace cxlkv::sim
