/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What an engine does with libcxl_kv, for one session of a model with 4 layers
 * of 2 KV heads: make a block when it begins, lease what a step reads, say what
 * mattered, seal what is full. Needs a running cxl-kvd. `make` builds it as
 * build/examples/decode; against the installed library:
 *
 *	gcc decode.c $(pkg-config --cflags --libs cxl_kv) -o decode
 */
#include <cxl_kv.h>
#include <stdio.h>
#include <string.h>

enum { NR_HEADS = 8, TOKENS_PER_BLOCK = 128, NR_TOKENS = 1024, TIMEOUT_MS = 5000 };

static const struct cxl_kv_geometry geometry = {
	.nr_slots = 1,
	.nr_layers = 4,
	.nr_kv_heads = 2,
	.head_dim = 64,
	.elem_bytes = 2,
	.tokens_per_block = TOKENS_PER_BLOCK,
	.tokens_per_slot = NR_TOKENS,
	.block_bytes = 2 * TOKENS_PER_BLOCK * 64 * 2, /* K, then V */
};

/* One head of one step; the real thing computes attention over the blocks here. */
static int step_head(struct cxl_kv_arena *arena, uint32_t head, uint32_t token)
{
	uint32_t block = token / TOKENS_PER_BLOCK, at = token % TOKENS_PER_BLOCK;
	struct cxl_kv_range all = {.head = head, .nr_blocks = block + 1};
	struct cxl_kv_range last = {.head = head, .block = block, .nr_blocks = 1};
	size_t vector_bytes = geometry.head_dim * geometry.elem_bytes;
	uint64_t nr_hits;
	int rc = 0;

	if (at == 0)
		rc = cxl_kv_make(arena, &last, 1, TIMEOUT_MS);
	if (rc)
		return rc;
	rc = cxl_kv_lease(arena, &all, 1, TIMEOUT_MS, &nr_hits);
	if (rc)
		return rc;
	memset((char *)cxl_kv_block(arena, 0, head, block) + at * vector_bytes, 1, vector_bytes);
	for (uint32_t i = 0; i <= block; i++)
		cxl_kv_hint_score(arena, 0, head, i, 1.0f / (float)(block + 1));
	rc = cxl_kv_unlease(arena, &all, 1);
	if (at == TOKENS_PER_BLOCK - 1)
		cxl_kv_seal(arena, &last);
	return rc;
}

static int decode(struct cxl_kv_arena *arena)
{
	int rc = cxl_kv_session_open(arena, 0, NULL);

	for (uint32_t token = 0; token < NR_TOKENS && !rc; token++) {
		cxl_kv_hint_position(arena, 0, token);
		for (uint32_t head = 0; head < NR_HEADS && !rc; head++)
			rc = step_head(arena, head, token);
	}
	return rc ? rc : cxl_kv_session_park(arena, 0);
}

int main(void)
{
	struct cxl_kv_arena *arena;
	struct cxl_kv *kv;
	int rc = cxl_kv_open(NULL, &kv);

	if (!rc) {
		rc = cxl_kv_arena_create(kv, &geometry, NULL, &arena);
		if (!rc)
			rc = decode(arena);
		cxl_kv_close(kv);
	}
	printf("%s\n", rc ? strerror(-rc) : "decoded");
	return rc ? 1 : 0;
}
