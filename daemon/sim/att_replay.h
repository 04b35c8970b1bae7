/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An attention trace through a cache of blocks: what a decode step needed was there, or was
 * fetched. */
#pragma once

#include "sim/att_access.h"
#include "sim/att_trace.h"

#include <cstdint>

namespace cxlkv::sim {

struct AttPolicy;

struct AttHits {
	uint64_t nr_accesses = 0, nr_hits = 0;
	uint64_t nr_fetched = 0; /* blocks of one head */
	uint64_t nr_head_steps = 0;
	double mass = 0, mass_resident = 0;

	[[nodiscard]] double hit_percent() const
	{
		return 100 * share(double(nr_hits), double(nr_accesses));
	}
	[[nodiscard]] double recall_percent() const { return 100 * share(mass_resident, mass); }
	[[nodiscard]] double fetched_per_head_step() const
	{
		return share(double(nr_fetched), double(nr_head_steps));
	}

private:
	static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }
};

/*
 * budget: share of the blocks that the whole sequence has. The second half of
 * the steps is added to hits.
 */
void replay_att(const AttTrace &trace, const AttPolicy &policy, const Access &access, double budget,
		AttHits &hits);

/* Blocks of a head that a budget is; every policy rounds alike. */
uint32_t budget_blocks(const AttTrace &trace, double budget);

} // namespace cxlkv::sim
