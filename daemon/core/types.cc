/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* check_geometry(): the one gate that every geometry from outside passes. */
#include "core/types.h"

#include <algorithm>
#include <bit>

namespace cxlkv {

namespace {

constexpr uint32_t page_bytes = 4096;

std::string out_of_range(const char *what, uint64_t value, uint64_t low, uint64_t high)
{
	return std::string(what) + " is " + std::to_string(value) + ", allowed " +
	       std::to_string(low) + ".." + std::to_string(high);
}

std::string check_counts(const Geometry &g)
{
	const struct {
		const char *what;
		uint32_t value, high;
	} fields[] = {
		{"nr_slots", g.nr_slots, CXL_KV_MAX_SLOTS},
		{"nr_layers", g.nr_layers, CXL_KV_MAX_LAYERS},
		{"nr_kv_heads", g.nr_kv_heads, CXL_KV_MAX_KV_HEADS},
		{"head_dim", g.head_dim, CXL_KV_MAX_BLOCK_BYTES},
		{"tokens_per_block", g.tokens_per_block, CXL_KV_MAX_BLOCK_BYTES},
		{"tokens_per_slot", g.tokens_per_slot, UINT32_MAX},
	};
	for (const auto &field : fields)
		if (field.value < 1 || field.value > field.high)
			return out_of_range(field.what, field.value, 1, field.high);
	if (g.elem_bytes != 1 && g.elem_bytes != 2 && g.elem_bytes != 4)
		return "elem_bytes is " + std::to_string(g.elem_bytes) + ", allowed 1, 2, 4";
	return "";
}

} // namespace

std::string check_geometry(const Geometry &g)
{
	if (std::string wrong = check_counts(g); !wrong.empty())
		return wrong;
	if (g.tokens_per_slot % g.tokens_per_block)
		return "tokens_per_slot " + std::to_string(g.tokens_per_slot) +
		       " is not a multiple of tokens_per_block " +
		       std::to_string(g.tokens_per_block);
	if (!std::has_single_bit(g.block_bytes) || g.block_bytes < page_bytes ||
	    g.block_bytes > CXL_KV_MAX_BLOCK_BYTES)
		return "block_bytes is " + std::to_string(g.block_bytes) +
		       ", allowed a power of two in " + std::to_string(page_bytes) + ".." +
		       std::to_string(CXL_KV_MAX_BLOCK_BYTES);
	/* At most 2 * 2^21 * 2^21 * 4 = 2^45. */
	uint64_t needed = uint64_t{2} * g.tokens_per_block * g.head_dim * g.elem_bytes;
	if (needed > g.block_bytes)
		return "block_bytes " + std::to_string(g.block_bytes) + " cannot hold K and V, " +
		       std::to_string(needed) + " bytes";
	/* Factor by factor: the product of all of them does not fit 64 bits. */
	uint64_t blocks = uint64_t{g.nr_layers} * g.nr_kv_heads; /* at most 2^20 */
	blocks *= g.tokens_per_slot / g.tokens_per_block;
	if (blocks <= CXL_KV_MAX_BLOCKS)
		blocks *= g.nr_slots;
	if (blocks > CXL_KV_MAX_BLOCKS)
		return "more than " + std::to_string(CXL_KV_MAX_BLOCKS) +
		       " blocks: fewer slots, or more tokens a block";
	if (g.layer_window.size() != g.nr_layers)
		return "layer_window has " + std::to_string(g.layer_window.size()) +
		       " entries for " + std::to_string(g.nr_layers) + " layers";
	return "";
}

} // namespace cxlkv
