/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where the pages of a session are made: a memory policy over its slot, set
 * before its first block. One range a session, never one a block: each range
 * splits the mapping (protocol.md, restore). Warm while the session prefills,
 * spread over the warm nodes by the kernel's weights; hot afterwards.
 *
 * A policy is a wish: of a node that is full the kernel takes pages elsewhere and
 * tells nobody. So who placed blocks looks afterwards where they are.
 */
#pragma once

#include "base/result.h"
#include "sys/arena.h"

#include <vector>

namespace cxlkv {

class Placement {
public:
	Placement(std::vector<int> hot_nodes, std::vector<int> warm_nodes)
	    : hot_nodes_(std::move(hot_nodes)), warm_nodes_(std::move(warm_nodes))
	{
	}

	/* False: one tier only, there is nothing to place. */
	[[nodiscard]] bool usable() const { return !warm_nodes_.empty(); }
	/* Everything hot: what an arena begins with. */
	Result<> place_arena(Arena &arena) const;
	/* where: Hot or Warm. Pages that are there stay where they are. */
	Result<> place_slot(Arena &arena, uint32_t slot, Where where) const;
	/*
	 * Books blocks that came into memory in the tier that has most of their pages.
	 * Some milliseconds for MiBs: not on a thread that faults wait for.
	 */
	struct Seen {
		std::vector<Extent> elsewhere; /* these were booked in the other tier */
		std::vector<Extent> busy;      /* these somebody works on: look again */
	};
	[[nodiscard]] Seen look(Arena &arena, const Extent &extent) const;

private:
	void look_at(Arena &arena, const std::vector<uint32_t> &blocks, Seen &seen) const;

	const std::vector<int> hot_nodes_, warm_nodes_;
};

} // namespace cxlkv
