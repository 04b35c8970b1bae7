/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which NUMA nodes are which tier on this machine, how much of them is ours, and
 * what else on it moves pages about.
 */
#pragma once

#include "options.h"

namespace cxlkv {

/* What the tiers came to on this machine. */
struct Tiers {
	std::vector<int> hot_nodes, warm_nodes;
	std::vector<uint32_t> hot_weights, warm_weights; /* one a node */
	uint64_t hot_limit_bytes = 0, warm_limit_bytes = 0;
};

/*
 * "auto": nodes with CPUs are hot, online memory-only nodes are warm; weights are
 * those of the kernel's weighted interleave, so that moves spread as new pages do.
 * Errors where a named node has no memory, where a tier is smaller than one block,
 * or where weights and nodes differ in number.
 */
Result<Tiers> resolve_tiers(const Options &options);

/* Other tierers that are active, kernel tiers that disagree with ours, a tier smaller than the one
 * above: one sentence each. */
std::vector<std::string> tier_warnings(const Tiers &tiers, uint64_t cold_bytes);

} // namespace cxlkv
