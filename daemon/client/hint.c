// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Hints: checked as the consumer checks them, then put into the ring. The
 * consumer may write anything into the ring's header, so the producer keeps its
 * own head, and a tail that cannot be reads as a full ring.
 */
#include "client/internal.h"

#include <errno.h>

static bool is_one_of(unsigned int kind, unsigned int kinds)
{
	return kind < 32 && (1u << kind) & kinds;
}

#define KIND(name) (1u << CXL_KV_HINT_##name)
#define BLOCK_KINDS (KIND(SCORE) | KIND(PIN) | KIND(SEAL) | KIND(DROP))
#define SESSION_KINDS (KIND(POSITION) | KIND(PHASE) | KIND(PARK) | KIND(WAKE))

/* A field that only some kinds have is zero in the others. */
static bool fields_fit(const struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	if (hint->reserved || (hint->score && hint->kind != CXL_KV_HINT_SCORE))
		return false;
	if (hint->kind != CXL_KV_HINT_PIN && (hint->priority || hint->lifetime_ms))
		return false;
	if (hint->priority > CXL_KV_MAX_PRIORITY)
		return false;
	if (hint->kind == CXL_KV_HINT_POSITION)
		return hint->position <= arena->geometry.tokens_per_slot;
	if (hint->kind == CXL_KV_HINT_PHASE)
		return hint->position <= 1;
	return !hint->position;
}

static int check_hint(const struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	const struct cxl_kv_range range = {hint->slot, hint->head, hint->block, hint->nr_blocks};

	if (!fields_fit(arena, hint))
		return -EINVAL;
	if (is_one_of(hint->kind, BLOCK_KINDS))
		return kv_check_ranges(arena, &range, 1);
	if (!is_one_of(hint->kind, SESSION_KINDS) || hint->nr_blocks ||
	    hint->slot >= arena->geometry.nr_slots)
		return -EINVAL;
	return 0;
}

/* Under ring_lock. */
static int produce(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	struct cxl_kv_ring *ring = arena->ring;
	struct cxl_kv_hint *entries = (void *)((char *)ring + CXL_KV_RING_ENTRIES_OFFSET);
	uint32_t tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);

	if (arena->ring_head - tail >= arena->nr_ring_entries) {
		__atomic_fetch_add(&ring->nr_dropped, 1, __ATOMIC_RELAXED);
		return -ENOSPC;
	}
	entries[arena->ring_head & (arena->nr_ring_entries - 1)] = *hint;
	arena->ring_head++;
	__atomic_store_n(&ring->head, arena->ring_head, __ATOMIC_RELEASE);
	return 0;
}

int cxl_kv_send_hint(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	int rc;

	if (kv_forked(arena->kv))
		return -EPERM;
	rc = hint ? check_hint(arena, hint) : -EINVAL;
	if (rc)
		return rc;
	pthread_mutex_lock(&arena->ring_lock);
	rc = produce(arena, hint);
	pthread_mutex_unlock(&arena->ring_lock);
	return rc;
}

int cxl_kv_hint_score(struct cxl_kv_arena *arena, uint32_t slot, uint32_t head, uint32_t block,
		      float mass)
{
	struct cxl_kv_hint hint = {
		.kind = CXL_KV_HINT_SCORE,
		.slot = slot,
		.head = head,
		.block = block,
		.nr_blocks = 1,
	};

	/* Also refuses NaN. Rounding may bring a sum of softmax terms a little above one. */
	if (!(mass >= 0.0f))
		return -EINVAL;
	hint.score = mass >= 1.0f ? CXL_KV_SCORE_ONE : (__u16)(mass * CXL_KV_SCORE_ONE + 0.5f);
	return cxl_kv_send_hint(arena, &hint);
}

int cxl_kv_hint_position(struct cxl_kv_arena *arena, uint32_t slot, uint32_t position)
{
	const struct cxl_kv_hint hint = {
		.kind = CXL_KV_HINT_POSITION,
		.slot = slot,
		.position = position,
	};

	return cxl_kv_send_hint(arena, &hint);
}

int cxl_kv_seal(struct cxl_kv_arena *arena, const struct cxl_kv_range *range)
{
	struct cxl_kv_hint hint = {.kind = CXL_KV_HINT_SEAL};

	if (!range)
		return -EINVAL;
	hint.slot = range->slot;
	hint.head = range->head;
	hint.block = range->block;
	hint.nr_blocks = range->nr_blocks;
	return cxl_kv_send_hint(arena, &hint);
}

int cxl_kv_pin(struct cxl_kv_arena *arena, const struct cxl_kv_range *range, uint8_t priority,
	       uint32_t lifetime_ms)
{
	struct cxl_kv_hint hint = {.kind = CXL_KV_HINT_PIN};

	if (!range)
		return -EINVAL;
	hint.priority = priority;
	hint.lifetime_ms = lifetime_ms;
	hint.slot = range->slot;
	hint.head = range->head;
	hint.block = range->block;
	hint.nr_blocks = range->nr_blocks;
	return cxl_kv_send_hint(arena, &hint);
}
