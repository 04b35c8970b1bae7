/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where the pages of a session are made: a memory policy over its slot, set
 * before its first block. One range a session, never one a block: each range
 * splits the mapping (protocol.md, restore). Warm while the session prefills,
 * spread over the warm nodes by the kernel's weights; hot afterwards.
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

private:
	const std::vector<int> hot_nodes_, warm_nodes_;
};

} // namespace cxlkv
