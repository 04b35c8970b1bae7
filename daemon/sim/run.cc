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

/* hit(factor): hit share with factor times the capacity. */
template <typename Hit> double latency(const ThreeTiers &tiers, Hit hit)
{
	double hot = hit(1);
	if (tiers.paper_split)
		return tiers.latency.effective_ns(hot);
	double warm = std::max(0.0, hit(1 + tiers.warm_ratio) - hot);
	LatencyModel latency = tiers.latency;
	latency.cold_share = hot < 1 ? 1 - warm / (1 - hot) : 0;
	return latency.effective_ns(hot);
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
	result.three_tier = tiers.has_value();
	double done = 0, all = static_cast<double>(policies.size() * capacities.size());
	for (const CachePolicy *policy : policies) {
		Row row{policy->name, policy->online, {}};
		for (double percent : capacities) {
			auto run = [&](double factor) {
				auto cache =
					policy->make({trace, blocks_of(trace, percent * factor)});
				return replay(trace, *cache, [&](uint64_t accesses) {
					progress((done +
						  double(accesses) / double(trace.nr_accesses())) /
						 all);
				});
			};
			Hits hits = run(1);
			Cell cell{hits.block_percent(), hits.prefix_percent(), 0, 0};
			if (tiers)
				cell.ns = latency(*tiers, [&](double factor) {
					return (factor == 1 ? hits : run(factor)).prefix_percent() /
					       100;
				});
			row.cells.push_back(cell);
			progress(++done / all);
		}
		result.rows.push_back(std::move(row));
	}
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
	result.three_tier = tiers.has_value();
	result.capacities = budgets;
	double done = 0,
	       all = static_cast<double>(policies.size() * budgets.size() * traces.size());
	for (const AttPolicy *policy : policies) {
		Row row{policy->name, policy->online, {}};
		for (double percent : budgets) {
			auto run = [&](double factor) {
				AttHits hits;
				for (const AttTrace &trace : traces) {
					double budget = std::min(1.0, percent / 100 * factor);
					replay_att(trace, *policy, access, budget, hits);
					if (factor == 1)
						progress(++done / all);
				}
				return hits;
			};
			AttHits hits = run(1);
			Cell cell{hits.hit_percent(), hits.recall_percent(),
				  hits.fetched_per_head_step(), 0};
			if (tiers)
				cell.ns = latency(*tiers, [&](double factor) {
					return (factor == 1 ? hits : run(factor)).hit_percent() /
					       100;
				});
			row.cells.push_back(cell);
		}
		result.rows.push_back(std::move(row));
	}
	return result;
}

} // namespace cxlkv::sim
