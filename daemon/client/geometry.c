// SPDX-License-Identifier: LGPL-2.1-or-later
/* Is a geometry usable? Every product is checked before anything is computed from it. */
#include "client/internal.h"

#include <errno.h>
#include <unistd.h>

static bool counts_fit(const struct cxl_kv_geometry *g)
{
	return g->nr_slots && g->nr_slots <= CXL_KV_MAX_SLOTS && g->nr_layers &&
	       g->nr_layers <= CXL_KV_MAX_LAYERS && g->nr_kv_heads &&
	       g->nr_kv_heads <= CXL_KV_MAX_KV_HEADS && g->tokens_per_block && g->tokens_per_slot &&
	       g->tokens_per_slot % g->tokens_per_block == 0;
}

static bool block_fits(const struct cxl_kv_geometry *g)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t vector_bytes;

	if (g->block_bytes > CXL_KV_MAX_BLOCK_BYTES || g->block_bytes & (g->block_bytes - 1) ||
	    g->block_bytes < page)
		return false;
	if (g->elem_bytes != 1 && g->elem_bytes != 2 && g->elem_bytes != 4)
		return false;
	/* Tokens bounded first: 2 * 2^32 * 4 * 2^21 stays below 2^64. */
	if (!g->head_dim || g->tokens_per_block > CXL_KV_MAX_BLOCK_BYTES)
		return false;
	vector_bytes = (uint64_t)g->head_dim * g->elem_bytes;
	return 2 * vector_bytes * g->tokens_per_block <= g->block_bytes;
}

int kv_geometry_check(const struct cxl_kv_geometry *g, struct kv_shape *shape)
{
	uint64_t nr_blocks;

	if (!counts_fit(g) || !block_fits(g))
		return -EINVAL;
	shape->nr_heads = g->nr_layers * g->nr_kv_heads;
	shape->blocks_per_head = g->tokens_per_slot / g->tokens_per_block;
	/* At most 2^20 heads times 2^32 blocks; dividing keeps the slots out of the product. */
	nr_blocks = (uint64_t)shape->nr_heads * shape->blocks_per_head;
	if (nr_blocks > CXL_KV_MAX_BLOCKS / g->nr_slots)
		return -EINVAL;
	shape->nr_blocks = (uint32_t)nr_blocks * g->nr_slots;
	shape->bytes = (uint64_t)shape->nr_blocks * g->block_bytes;
	return 0;
}
