// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/cxl_kv/arenaN/blocks: how many blocks of an arena are in which of
 * the endpoint's coherence states, and in those that have none. Counted in the
 * state table when a file is read: manager and client change the table, nobody
 * else knows of it. What it holds is only counted, so that it may lie.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "internal.h"
#include "sysfs.h"

enum block_state {
	BLOCK_EMPTY,
	BLOCK_ABSENT, /* Invalid: the store is authoritative */
	BLOCK_CLEAN,  /* Shared */
	BLOCK_LEASED, /* Exclusive */
	BLOCK_DIRTY,  /* Modified */
	BLOCK_LOST,
	NR_BLOCK_STATES,
};

static enum block_state state_of(u64 word)
{
	switch (word & CXL_KV_WORD_STATE_MASK) {
	case CXL_KV_RESIDENT:
	case CXL_KV_SPILLING:
		if (word & CXL_KV_WORD_LEASES_MASK)
			return BLOCK_LEASED;
		return word & CXL_KV_WORD_CLEAN ? BLOCK_CLEAN : BLOCK_DIRTY;
	case CXL_KV_PUNCHING:
	case CXL_KV_COLD:
	case CXL_KV_RESTORING:
		return BLOCK_ABSENT;
	case CXL_KV_LOST:
		return BLOCK_LOST;
	}
	return BLOCK_EMPTY;
}

/* The arena's table with a reference, or NULL when it has ended. */
static struct file *get_table(struct cxl_kv_arena *arena)
{
	struct file *table = NULL;

	mutex_lock(&cxl_kv_registry.lock);
	if (!arena->retired)
		table = get_file(arena->files[CXL_KV_FILE_TABLE]);
	mutex_unlock(&cxl_kv_registry.lock);
	return table;
}

/*
 * A table has up to 8 GiB. The arena's end waits for whoever reads its files in
 * sysfs, so that counting stops there.
 */
static int count_blocks(struct cxl_kv_arena *arena, struct file *table, u32 *counts)
{
	u64 *words = (u64 *)__get_free_page(GFP_KERNEL);
	u64 left = (u64)arena->nr_blocks * sizeof(u64);
	loff_t at = 0;
	ssize_t len;
	int ret = 0;
	u32 i;

	if (!words)
		return -ENOMEM;
	while (left && !ret) {
		len = kernel_read(table, words, min_t(u64, left, PAGE_SIZE), &at);
		if (len <= 0) {
			ret = -EIO;
			break;
		}
		for (i = 0; i < len / sizeof(u64); i++)
			counts[state_of(words[i])]++;
		left -= len;
		cond_resched();
		if (READ_ONCE(arena->retired))
			ret = -ENODEV;
		else if (fatal_signal_pending(current))
			ret = -EINTR;
	}
	free_page((unsigned long)words);
	return ret;
}

static ssize_t show_count(struct device *dev, enum block_state state, char *buf)
{
	struct cxl_kv_arena *arena = container_of(dev, struct cxl_kv_arena, dev);
	struct file *table = get_table(arena);
	u32 counts[NR_BLOCK_STATES] = {};
	int ret;

	if (!table)
		return -ENODEV;
	ret = count_blocks(arena, table, counts);
	fput(table);
	return ret ?: sysfs_emit(buf, "%u\n", counts[state]);
}

#define BLOCK_SHOW(_name, _state)                                                                  \
	static ssize_t _name##_show(struct device *dev, struct device_attribute *attr, char *buf)  \
	{                                                                                          \
		return show_count(dev, _state, buf);                                               \
	}                                                                                          \
	static DEVICE_ATTR_RO(_name)

BLOCK_SHOW(empty, BLOCK_EMPTY);
BLOCK_SHOW(absent, BLOCK_ABSENT);
BLOCK_SHOW(clean, BLOCK_CLEAN);
BLOCK_SHOW(leased, BLOCK_LEASED);
BLOCK_SHOW(dirty, BLOCK_DIRTY);
BLOCK_SHOW(lost, BLOCK_LOST);

static struct attribute *block_attrs[] = {
	&dev_attr_empty.attr,
	&dev_attr_absent.attr,
	&dev_attr_clean.attr,
	&dev_attr_leased.attr,
	&dev_attr_dirty.attr,
	&dev_attr_lost.attr,
	NULL,
};

const struct attribute_group cxl_kv_blocks_group = {
	.name = "blocks",
	.attrs = block_attrs,
};
