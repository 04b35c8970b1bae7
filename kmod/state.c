// SPDX-License-Identifier: GPL-2.0
/*
 * Reading the state of heads and sessions that hints and samples have left.
 * Without a lock: each value is right, two of them may be of different moments.
 */
#include <linux/jiffies.h>
#include <linux/uaccess.h>

#include "internal.h"

void cxl_kv_get_head(const struct cxl_kv_arena *arena, u32 nr, struct cxl_kv_head *out)
{
	const struct cxl_kv_head_state *head = &arena->heads[nr];
	unsigned long expires = READ_ONCE(head->pin_expires), now = jiffies;

	memset(out, 0, sizeof(*out));
	out->score = READ_ONCE(head->score) >> 8;
	out->priority = READ_ONCE(head->priority);
	if (expires && time_before(now, expires))
		out->pin_ms = jiffies_to_msecs(expires - now) ?: 1;
	else if (expires)
		out->priority = CXL_KV_DEFAULT_PRIORITY;
	out->nr_hints = READ_ONCE(head->nr_hints);
	out->touched_pages = READ_ONCE(head->touched_pages);
	out->written_pages = READ_ONCE(head->written_pages);
}

void cxl_kv_get_slot(const struct cxl_kv_arena *arena, u32 nr, struct cxl_kv_slot *out)
{
	const struct cxl_kv_slot_state *slot = &arena->slots[nr];

	memset(out, 0, sizeof(*out));
	out->position = READ_ONCE(slot->position);
	out->phase = READ_ONCE(slot->phase);
	out->parked = READ_ONCE(slot->parked);
	out->nr_hints = READ_ONCE(slot->nr_hints);
}

/* How many of @room entries from @first there are, of @total. */
static u32 available(u32 first, u32 room, u32 total)
{
	return first < total ? min(room, total - first) : 0;
}

static int read_heads(const struct cxl_kv_arena *arena, struct cxl_kv_state_read *read)
{
	struct cxl_kv_head __user *to = u64_to_user_ptr(read->out);
	struct cxl_kv_head head;
	u32 i;

	read->nr = available(read->first, read->nr, arena->nr_heads);
	for (i = 0; i < read->nr; i++) {
		cxl_kv_get_head(arena, read->first + i, &head);
		if (copy_to_user(to + i, &head, sizeof(head)))
			return -EFAULT;
	}
	return 0;
}

static int read_slots(const struct cxl_kv_arena *arena, struct cxl_kv_state_read *read)
{
	struct cxl_kv_slot __user *to = u64_to_user_ptr(read->out);
	struct cxl_kv_slot slot;
	u32 i;

	read->nr = available(read->first, read->nr, arena->geometry.nr_slots);
	for (i = 0; i < read->nr; i++) {
		cxl_kv_get_slot(arena, read->first + i, &slot);
		if (copy_to_user(to + i, &slot, sizeof(slot)))
			return -EFAULT;
	}
	return 0;
}

static int state_read(struct cxl_kv_cmd *cmd,
		      int (*fill)(const struct cxl_kv_arena *, struct cxl_kv_state_read *))
{
	struct cxl_kv_state_read *read = cmd->buf;
	struct cxl_kv_arena *arena = cxl_kv_arena_get(read->arena);
	int ret;

	if (!arena)
		return -ENOENT;
	ret = fill(arena, read);
	put_device(&arena->dev);
	return ret ?: cxl_kv_respond(cmd);
}

int cxl_kv_heads_read(struct cxl_kv_cmd *cmd)
{
	return state_read(cmd, read_heads);
}

int cxl_kv_slots_read(struct cxl_kv_cmd *cmd)
{
	return state_read(cmd, read_slots);
}
