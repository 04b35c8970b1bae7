// SPDX-License-Identifier: GPL-2.0
/*
 * Hints: each is checked against the arena's geometry, applied to the state of
 * its head or session, and queued for the manager. What a hint means for
 * placement is the manager's business.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

#define BOUNCE 32 /* hints copied at once between user space and the locks: 1 KiB of stack */

int cxl_kv_hints_create(struct cxl_kv_arena *arena)
{
	u32 i;

	mutex_init(&arena->hint_lock);
	arena->queue = kvcalloc(CXL_KV_QUEUE_ENTRIES, sizeof(*arena->queue), GFP_KERNEL_ACCOUNT);
	arena->heads = kvcalloc(arena->nr_heads, sizeof(*arena->heads), GFP_KERNEL_ACCOUNT);
	arena->slots = kvcalloc(arena->geometry.nr_slots, sizeof(*arena->slots),
				GFP_KERNEL_ACCOUNT);
	if (!arena->queue || !arena->heads || !arena->slots)
		return -ENOMEM;
	for (i = 0; i < arena->nr_heads; i++)
		arena->heads[i].priority = CXL_KV_DEFAULT_PRIORITY;
	for (i = 0; i < arena->geometry.nr_slots; i++)
		arena->slots[i].phase = CXL_KV_PHASE_UNKNOWN;
	return 0;
}

void cxl_kv_hints_free(struct cxl_kv_arena *arena)
{
	kvfree(arena->queue);
	kvfree(arena->heads);
	kvfree(arena->slots);
}

static bool names_blocks(const struct cxl_kv_hint *hint)
{
	switch (hint->kind) {
	case CXL_KV_HINT_SCORE:
	case CXL_KV_HINT_PIN:
	case CXL_KV_HINT_SEAL:
	case CXL_KV_HINT_DROP:
		return true;
	}
	return false;
}

/* Fields that a kind does not have are zero, those that it has are in range. */
static bool fields_fit(const struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	if (hint->reserved || (hint->score && hint->kind != CXL_KV_HINT_SCORE))
		return false;
	if (hint->kind != CXL_KV_HINT_PIN && (hint->priority || hint->lifetime_ms))
		return false;
	if (hint->priority > CXL_KV_MAX_PRIORITY)
		return false;
	switch (hint->kind) {
	case CXL_KV_HINT_POSITION:
		return hint->position <= arena->geometry.tokens_per_slot;
	case CXL_KV_HINT_PHASE:
		return hint->position <= CXL_KV_PHASE_DECODE;
	}
	return !hint->position;
}

static bool is_valid(const struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	if (hint->kind < CXL_KV_HINT_SCORE || hint->kind > CXL_KV_HINT_DROP)
		return false;
	if (hint->slot >= arena->geometry.nr_slots || !fields_fit(arena, hint))
		return false;
	if (!names_blocks(hint))
		return !hint->nr_blocks;
	return hint->head < arena->nr_heads && hint->nr_blocks &&
	       hint->block < arena->blocks_per_head &&
	       hint->nr_blocks <= arena->blocks_per_head - hint->block;
}

static void pin(struct cxl_kv_head_state *head, const struct cxl_kv_hint *hint)
{
	unsigned long expires = 0;

	/* 0 means never; msecs_to_jiffies() takes what is past INT_MAX for that too. */
	if (hint->lifetime_ms)
		expires = (jiffies + DIV_ROUND_UP_ULL((u64)hint->lifetime_ms * HZ, MSEC_PER_SEC)) ?: 1;
	WRITE_ONCE(head->pin_expires, expires);
	WRITE_ONCE(head->priority, hint->priority);
}

/* A fifth of the difference, like the policy's alpha of 0.2. */
static void score(struct cxl_kv_head_state *head, const struct cxl_kv_hint *hint)
{
	s32 now = head->score;

	WRITE_ONCE(head->score, now + (((s32)hint->score << 8) - now) / 5);
}

static void apply_to_head(struct cxl_kv_head_state *head, const struct cxl_kv_hint *hint)
{
	head->nr_hints++;
	if (hint->kind == CXL_KV_HINT_SCORE)
		score(head, hint);
	else if (hint->kind == CXL_KV_HINT_PIN)
		pin(head, hint);
}

static void apply_to_slot(struct cxl_kv_slot_state *slot, const struct cxl_kv_hint *hint)
{
	slot->nr_hints++;
	switch (hint->kind) {
	case CXL_KV_HINT_POSITION:
		WRITE_ONCE(slot->position, hint->position);
		break;
	case CXL_KV_HINT_PHASE:
		WRITE_ONCE(slot->phase, hint->position);
		break;
	case CXL_KV_HINT_PARK:
	case CXL_KV_HINT_WAKE:
		WRITE_ONCE(slot->parked, hint->kind == CXL_KV_HINT_PARK);
		break;
	}
}

int cxl_kv_hint_take(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint)
{
	lockdep_assert_held(&arena->hint_lock);
	if (!is_valid(arena, hint))
		return -EINVAL;
	arena->nr_taken++;
	if (names_blocks(hint))
		apply_to_head(&arena->heads[hint->head], hint);
	apply_to_slot(&arena->slots[hint->slot], hint);
	trace_cxl_kv_hint(arena->id, hint);

	if (arena->queue_head - arena->queue_tail == CXL_KV_QUEUE_ENTRIES)
		arena->nr_lost++;
	else
		arena->queue[arena->queue_head++ % CXL_KV_QUEUE_ENTRIES] = *hint;
	return 0;
}

/* What is refused takes no room, so more than @max entries may have to be looked at. */
static void collect(struct cxl_kv_arena *arena)
{
	u32 room = CXL_KV_QUEUE_ENTRIES - (arena->queue_head - arena->queue_tail);

	cxl_kv_ring_drain(arena, room);
}

void cxl_kv_hints_collect(struct cxl_kv_arena *arena)
{
	mutex_lock(&arena->hint_lock);
	collect(arena);
	mutex_unlock(&arena->hint_lock);
}

/* Hints until one is refused; their number is in @nr_taken. */
static int take_all(struct cxl_kv_arena *arena, const struct cxl_kv_hint __user *from, u32 nr,
		    u32 *nr_taken)
{
	struct cxl_kv_hint hints[BOUNCE];
	u32 i, some;
	int ret = 0;

	for (; nr && !ret; nr -= some, from += some) {
		some = min_t(u32, nr, BOUNCE);
		if (copy_from_user(hints, from, some * sizeof(*hints)))
			return -EFAULT;
		mutex_lock(&arena->hint_lock);
		for (i = 0; i < some && !ret; i++) {
			ret = cxl_kv_hint_take(arena, &hints[i]);
			if (!ret)
				(*nr_taken)++;
		}
		mutex_unlock(&arena->hint_lock);
	}
	return ret;
}

int cxl_kv_hint_ioctl(struct cxl_kv_cmd *cmd)
{
	struct cxl_kv_hints *hints = cmd->buf;
	struct cxl_kv_arena *arena;
	int ret;

	if (hints->nr > CXL_KV_MAX_HINTS)
		return -EINVAL;
	arena = cxl_kv_arena_get_own(cmd->file, hints->arena);
	if (IS_ERR(arena))
		return PTR_ERR(arena);
	hints->nr_taken = 0;
	ret = take_all(arena, u64_to_user_ptr(hints->hints), hints->nr, &hints->nr_taken);
	put_device(&arena->dev);
	return cxl_kv_respond(cmd) ?: ret;
}

static u32 take_from_queue(struct cxl_kv_arena *arena, struct cxl_kv_hint *hints, u32 max)
{
	u32 nr = 0;

	mutex_lock(&arena->hint_lock);
	collect(arena);
	while (nr < max && arena->queue_tail != arena->queue_head)
		hints[nr++] = arena->queue[arena->queue_tail++ % CXL_KV_QUEUE_ENTRIES];
	mutex_unlock(&arena->hint_lock);
	return nr;
}

/* Taken, and nowhere to go. */
static void count_lost(struct cxl_kv_arena *arena, u32 nr)
{
	mutex_lock(&arena->hint_lock);
	arena->nr_lost += nr;
	mutex_unlock(&arena->hint_lock);
}

static int give_all(struct cxl_kv_arena *arena, struct cxl_kv_hint __user *to, u32 room, u32 *nr)
{
	struct cxl_kv_hint hints[BOUNCE];
	u32 some;

	while (*nr < room) {
		some = take_from_queue(arena, hints, min_t(u32, room - *nr, BOUNCE));
		if (copy_to_user(to + *nr, hints, some * sizeof(*hints))) {
			count_lost(arena, some);
			return -EFAULT;
		}
		*nr += some;
		if (some < BOUNCE)
			break;
	}
	return 0;
}

int cxl_kv_hints_read(struct cxl_kv_cmd *cmd)
{
	struct cxl_kv_hints_read *read = cmd->buf;
	u32 room = read->nr;
	struct cxl_kv_arena *arena;
	int ret;

	if (room > CXL_KV_MAX_HINTS)
		return -EINVAL;
	arena = cxl_kv_arena_get(read->arena);
	if (!arena)
		return -ENOENT;
	read->nr = 0;
	ret = give_all(arena, u64_to_user_ptr(read->hints), room, &read->nr);
	mutex_lock(&arena->hint_lock);
	read->nr_taken = arena->nr_taken;
	read->nr_bad = arena->nr_bad;
	read->nr_lost = arena->nr_lost;
	read->nr_dropped = arena->ring ? READ_ONCE(arena->ring->nr_dropped) : 0;
	mutex_unlock(&arena->hint_lock);
	put_device(&arena->dev);
	return ret ?: cxl_kv_respond(cmd);
}
