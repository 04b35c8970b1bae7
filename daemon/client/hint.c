// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Hints: checked as the consumer checks them, then put into the ring. The
 * consumer may write anything into the ring's header, so the producer keeps its
 * own head, and a tail that cannot be reads as a full ring.
 */
#include "client/internal.h"

#include <errno.h>

static bool names_blocks(const struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	uint32_t blocks_per_head = arena->shape.blocks_per_head;

	/* nr_blocks = 0 wraps, and is out of range too. */
	return hint->head < arena->shape.nr_heads && hint->block < blocks_per_head &&
	       hint->nr_blocks - 1 < blocks_per_head - hint->block;
}

/* A field that only other kinds have is zero. */
static bool hint_fits(const struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	if (hint->slot >= arena->geometry.nr_slots || hint->reserved)
		return false;
	if (hint->kind != CXL_KV_HINT_PIN && (hint->priority || hint->lifetime_ms))
		return false;
	if (hint->kind != CXL_KV_HINT_SCORE && hint->score)
		return false;

	switch (hint->kind) {
	case CXL_KV_HINT_SCORE:
	case CXL_KV_HINT_SEAL:
	case CXL_KV_HINT_DROP:
		return !hint->position && names_blocks(arena, hint);
	case CXL_KV_HINT_PIN:
		return !hint->position && hint->priority <= CXL_KV_MAX_PRIORITY &&
		       names_blocks(arena, hint);
	case CXL_KV_HINT_POSITION:
		return !hint->nr_blocks && hint->position <= arena->geometry.tokens_per_slot;
	case CXL_KV_HINT_PHASE:
		return !hint->nr_blocks && hint->position <= 1;
	case CXL_KV_HINT_PARK:
	case CXL_KV_HINT_WAKE:
		return !hint->nr_blocks && !hint->position;
	default:
		return false;
	}
}

/* Under ring_lock. Returns how many there was room for. */
static size_t produce(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hints, size_t nr)
{
	struct cxl_kv_ring *ring = arena->ring;
	struct cxl_kv_hint *entries = (void *)((char *)ring + CXL_KV_RING_ENTRIES_OFFSET);
	uint32_t tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
	uint32_t head = arena->ring_head, mask = arena->nr_ring_entries - 1;
	size_t room = head - tail <= mask ? mask + 1 - (head - tail) : 0;

	if (nr > room) {
		__atomic_fetch_add(&ring->nr_dropped, (uint32_t)(nr - room), __ATOMIC_RELAXED);
		nr = room;
	}
	for (size_t i = 0; i < nr; i++)
		entries[head++ & mask] = hints[i];
	arena->ring_head = head;
	__atomic_store_n(&ring->head, head, __ATOMIC_RELEASE);
	return nr;
}

/* Not the exported function: a call of that takes the way through the linkage table. */
static inline int send_all(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hints, size_t nr)
{
	size_t nr_sent;

	if (kv_forked(arena->kv))
		return -EPERM;
	if (nr && !hints)
		return -EINVAL;
	for (size_t i = 0; i < nr; i++) {
		if (!hint_fits(arena, &hints[i]))
			return -EINVAL;
	}
	pthread_mutex_lock(&arena->ring_lock);
	nr_sent = produce(arena, hints, nr);
	pthread_mutex_unlock(&arena->ring_lock);
	return nr_sent < nr ? -ENOSPC : 0;
}

int cxl_kv_send_hints(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hints, size_t nr)
{
	return send_all(arena, hints, nr);
}

int cxl_kv_send_hint(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	return send_all(arena, hint, 1);
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
	return send_all(arena, &hint, 1);
}

int cxl_kv_hint_position(struct cxl_kv_arena *arena, uint32_t slot, uint32_t position)
{
	const struct cxl_kv_hint hint = {
		.kind = CXL_KV_HINT_POSITION,
		.slot = slot,
		.position = position,
	};

	return send_all(arena, &hint, 1);
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
	return send_all(arena, &hint, 1);
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
	return send_all(arena, &hint, 1);
}
