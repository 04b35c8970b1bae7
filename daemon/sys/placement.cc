/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/placement.h"

#include "sys/arena_pages.h"

#include <algorithm>
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

/* While it is claimed, the mover and the spiller leave a block where it is. */
Placement::Seen Placement::look(Arena &arena, const Extent &extent) const
{
	std::vector<uint32_t> blocks;
	Seen seen;

	for (uint32_t block = extent.first; block < extent.first + extent.nr; block++) {
		if (!arena.try_busy(block))
			append(seen.busy, {extent.arena, block, 1});
		else if (const Where where = arena.where(block);
			 where == Where::Hot || where == Where::Warm)
			blocks.push_back(block);
		else
			arena.clear_busy(block);
	}
	look_at(arena, blocks, seen);
	for (uint32_t block : blocks)
		arena.clear_busy(block);
	return seen;
}

void Placement::look_at(Arena &arena, const std::vector<uint32_t> &blocks, Seen &seen) const
{
	std::vector<void *> pages = map_pages(arena, blocks);
	std::vector<int> nodes(pages.size(), -ENOENT);

	if (pages.empty() ||
	    move_pages(0, pages.size(), pages.data(), nullptr, nodes.data(), 0) < 0)
		return;
	const size_t pages_per_block = pages.size() / blocks.size();
	for (size_t i = 0; i < blocks.size(); i++) {
		const auto begin = nodes.begin() + static_cast<ptrdiff_t>(i * pages_per_block);
		const auto end = begin + static_cast<ptrdiff_t>(pages_per_block);
		const auto there = std::count_if(begin, end, [](int node) { return node >= 0; });
		const auto hot = std::count_if(begin, end, [this](int node) {
			return std::ranges::find(hot_nodes_, node) != hot_nodes_.end();
		});
		const Where where = 2 * hot > there ? Where::Hot : Where::Warm;
		if (!there || where == arena.where(blocks[i]))
			continue;
		arena.set_where(blocks[i], where);
		append(seen.elsewhere, {arena.options.number, blocks[i], 1});
	}
}

} // namespace cxlkv
