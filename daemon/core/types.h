/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Words that policy, mover and spill engine share. Plain data, no behaviour that could fail. */
#pragma once

#include <cstdint>
#include <linux/cxl_kv.h>
#include <string>
#include <vector>

namespace cxlkv {

/* Geometry with the counts that follow from it. Blocks are named by one index (see the UAPI
 * header). */
struct Geometry : cxl_kv_geometry {
	std::vector<uint32_t> layer_window; /* tokens, 0 = full; nr_layers entries */

	[[nodiscard]] uint32_t nr_heads() const { return nr_layers * nr_kv_heads; }
	[[nodiscard]] uint32_t blocks_per_head() const
	{
		return tokens_per_slot / tokens_per_block;
	}
	[[nodiscard]] uint32_t blocks_per_slot() const { return nr_heads() * blocks_per_head(); }
	[[nodiscard]] uint32_t nr_blocks() const { return nr_slots * blocks_per_slot(); }
	[[nodiscard]] uint64_t bytes() const { return uint64_t{nr_blocks()} * block_bytes; }
	[[nodiscard]] uint32_t block_index(uint32_t slot, uint32_t head, uint32_t block) const
	{
		return (slot * nr_heads() + head) * blocks_per_head() + block;
	}
	[[nodiscard]] uint32_t slot_of(uint32_t index) const { return index / blocks_per_slot(); }
	[[nodiscard]] uint32_t head_of(uint32_t index) const
	{
		return index / blocks_per_head() % nr_heads();
	}
	[[nodiscard]] uint32_t block_of(uint32_t index) const { return index % blocks_per_head(); }
};

/* "" when the geometry is usable, else what is wrong with it. Safe on any input. */
std::string check_geometry(const Geometry &geometry);

/* Where the daemon itself knows a block to be. */
enum class Where : uint8_t { Empty, Hot, Warm, Cold, Lost };

constexpr size_t as_index(Where where)
{
	return static_cast<size_t>(where);
}

/* Adjacent blocks of one arena, by block index. */
struct Extent {
	uint32_t arena = 0; /* the daemon's number of the arena */
	uint32_t first = 0;
	uint32_t nr = 0;
};

/* At the end of a list of extents; makes the last one longer where these blocks follow it. */
template <typename Extents> void append(Extents &extents, const Extent &more)
{
	if (!extents.empty() && extents.back().arena == more.arena &&
	    extents.back().first + extents.back().nr == more.first)
		extents.back().nr += more.nr;
	else
		extents.push_back(more);
}

enum class Action : uint8_t {
	Demote,   /* hot -> warm */
	Spill,    /* hot or warm -> cold */
	Promote,  /* warm -> hot */
	Prefetch, /* cold -> hot */
	Drop,     /* outside the attention window: contents not needed */
	Forget,   /* given up: whoever asks for it is told to recompute */
};

struct Order {
	Action action;
	Extent extent;
};

} // namespace cxlkv
