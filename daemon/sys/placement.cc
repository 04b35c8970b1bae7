/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/placement.h"

#include <fmt/format.h>
#include <numa.h>
#include <numaif.h>

namespace cxlkv {

namespace {

/* Since 6.9; libnuma's header of Debian 12 is older. */
constexpr int kWeightedInterleave = 6;

/*
 * PREFERRED falls back to other nodes when its node is full, where BIND would
 * have the daemon or the client killed; so do the two interleave modes.
 */
bool bind_range(std::byte *at, size_t bytes, const std::vector<int> &nodes)
{
	bitmask *mask = numa_allocate_nodemask();
	bool bound = false;

	for (int node : nodes)
		numa_bitmask_setbit(mask, static_cast<unsigned>(node));
	auto try_mode = [&](int mode) {
		return !mbind(at, bytes, mode, mask->maskp, mask->size + 1, 0);
	};
	if (nodes.size() == 1)
		bound = try_mode(MPOL_PREFERRED);
	else
		bound = try_mode(kWeightedInterleave) || try_mode(MPOL_INTERLEAVE);
	numa_bitmask_free(mask);
	return bound;
}

} // namespace

Result<> Placement::place_arena(Arena &arena) const
{
	if (!usable())
		return ok();
	if (!bind_range(arena.base(), arena.geometry.bytes(), hot_nodes_))
		return sys_error("memory policy of an arena");
	for (uint32_t slot = 0; slot < arena.geometry.nr_slots; slot++)
		arena.set_placement(slot, Where::Hot);
	return ok();
}

Result<> Placement::place_slot(Arena &arena, uint32_t slot, Where where) const
{
	const uint64_t bytes =
		uint64_t{arena.geometry.blocks_per_slot()} * arena.geometry.block_bytes;

	if (!usable() || arena.placement(slot) == where)
		return ok();
	if (!bind_range(arena.base() + slot * bytes, bytes,
			where == Where::Warm ? warm_nodes_ : hot_nodes_))
		return sys_error(fmt::format("memory policy of slot {}", slot));
	arena.set_placement(slot, where);
	return ok();
}

} // namespace cxlkv
