// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/cxl_kv/arenaN: an arena's geometry, the counters of its hints and
 * of its sampling, and a directory for each head and each session. One value a
 * file.
 *
 * Directories cost kernel memory that nobody is charged for, so there is a limit
 * on them for all arenas together. What is not shown can be read by ioctl.
 */
#include <linux/atomic.h>
#include <linux/kobject.h>
#include <linux/pid.h>
#include <linux/slab.h>

#include "internal.h"
#include "sysfs.h"

#define MAX_ENTRIES 16384 /* directories of heads and sessions, about 1 KiB each */

static atomic_t nr_entries;

#define ARENA_SHOW(_name, _fmt, _value) CXL_KV_SHOW(_name, struct cxl_kv_arena, _fmt, _value)

/* As init's pid namespace numbers it, like everything in sysfs. */
ARENA_SHOW(pid, "%d", pid_nr(it->pid));
ARENA_SHOW(nr_blocks, "%u", it->nr_blocks);

static struct attribute *arena_attrs[] = {
	&dev_attr_pid.attr,
	&dev_attr_nr_blocks.attr,
	NULL,
};

static const struct attribute_group arena_group = {
	.attrs = arena_attrs,
};

ARENA_SHOW(nr_slots, "%u", it->geometry.nr_slots);
ARENA_SHOW(nr_layers, "%u", it->geometry.nr_layers);
ARENA_SHOW(nr_kv_heads, "%u", it->geometry.nr_kv_heads);
ARENA_SHOW(head_dim, "%u", it->geometry.head_dim);
ARENA_SHOW(elem_bytes, "%u", it->geometry.elem_bytes);
ARENA_SHOW(tokens_per_block, "%u", it->geometry.tokens_per_block);
ARENA_SHOW(tokens_per_slot, "%u", it->geometry.tokens_per_slot);
ARENA_SHOW(block_bytes, "%u", it->geometry.block_bytes);

static struct attribute *geometry_attrs[] = {
	&dev_attr_nr_slots.attr,
	&dev_attr_nr_layers.attr,
	&dev_attr_nr_kv_heads.attr,
	&dev_attr_head_dim.attr,
	&dev_attr_elem_bytes.attr,
	&dev_attr_tokens_per_block.attr,
	&dev_attr_tokens_per_slot.attr,
	&dev_attr_block_bytes.attr,
	NULL,
};

static const struct attribute_group geometry_group = {
	.name = "geometry",
	.attrs = geometry_attrs,
};

ARENA_SHOW(taken, "%llu", READ_ONCE(it->nr_taken));
ARENA_SHOW(bad, "%llu", READ_ONCE(it->nr_bad));
ARENA_SHOW(lost, "%llu", READ_ONCE(it->nr_lost));
ARENA_SHOW(dropped, "%u", it->ring ? READ_ONCE(it->ring->nr_dropped) : 0);
ARENA_SHOW(ring_entries, "%u", it->ring_entries);

static struct attribute *hint_attrs[] = {
	&dev_attr_taken.attr,
	&dev_attr_bad.attr,
	&dev_attr_lost.attr,
	&dev_attr_dropped.attr,
	&dev_attr_ring_entries.attr,
	NULL,
};

static const struct attribute_group hint_group = {
	.name = "hints",
	.attrs = hint_attrs,
};

static const char *const way_names[] = {
	[CXL_KV_SAMPLE_OFF] = "off",
	[CXL_KV_SAMPLE_ACCESSED] = "accessed",
	[CXL_KV_SAMPLE_REFAULT] = "refault",
};

ARENA_SHOW(way, "%s", way_names[READ_ONCE(it->sampler.way)]);
ARENA_SHOW(flush_tlb, "%d", !!(READ_ONCE(it->sampler.flags) & CXL_KV_SAMPLE_FLUSH_TLB));
ARENA_SHOW(interval_ms, "%u", READ_ONCE(it->sampler.interval_ms));
ARENA_SHOW(budget_permil, "%u", READ_ONCE(it->sampler.budget_permil));
ARENA_SHOW(passes, "%llu", READ_ONCE(it->sampler.nr_passes));
ARENA_SHOW(touched_pages, "%llu", READ_ONCE(it->sampler.nr_touched_pages));
ARENA_SHOW(written_pages, "%llu", READ_ONCE(it->sampler.nr_written_pages));
ARENA_SHOW(spent_ns, "%llu", READ_ONCE(it->sampler.spent_ns));
ARENA_SHOW(locked_out, "%llu", READ_ONCE(it->sampler.nr_locked_out));

static struct attribute *sample_attrs[] = {
	&dev_attr_way.attr,
	&dev_attr_flush_tlb.attr,
	&dev_attr_interval_ms.attr,
	&dev_attr_budget_permil.attr,
	&dev_attr_passes.attr,
	&dev_attr_touched_pages.attr,
	&dev_attr_written_pages.attr,
	&dev_attr_spent_ns.attr,
	&dev_attr_locked_out.attr,
	NULL,
};

static const struct attribute_group sample_group = {
	.name = "sample",
	.attrs = sample_attrs,
};

static const struct attribute_group *arena_groups[] = {
	&arena_group,
	&geometry_group,
	&hint_group,
	&sample_group,
	&cxl_kv_blocks_group,
	NULL,
};

static void arena_release(struct device *dev)
{
	cxl_kv_arena_free(container_of(dev, struct cxl_kv_arena, dev));
}

static const struct device_type arena_type = {
	.name = "cxl_kv_arena",
	.groups = arena_groups,
	.release = arena_release,
};

/* A directory for one head or one session, below that of its arena. */
struct entry {
	struct kobject kobj;
	struct cxl_kv_arena *arena; /* an ancestor: lives longer */
	u32 nr;
};

static struct entry *to_entry(struct kobject *kobj)
{
	return container_of(kobj, struct entry, kobj);
}

static void entry_release(struct kobject *kobj)
{
	kfree(to_entry(kobj));
}

#define ENTRY_SHOW(_kind, _name, _fmt, _value)                                                     \
	static ssize_t _kind##_##_name##_show(struct kobject *kobj, struct kobj_attribute *attr,   \
					      char *buf)                                           \
	{                                                                                          \
		const struct entry *entry = to_entry(kobj);                                        \
		struct cxl_kv_##_kind it;                                                          \
												   \
		cxl_kv_get_##_kind(entry->arena, entry->nr, &it);                                  \
		return sysfs_emit(buf, _fmt "\n", _value);                                         \
	}                                                                                          \
	static struct kobj_attribute _kind##_##_name##_attr =                                      \
		__ATTR(_name, 0444, _kind##_##_name##_show, NULL)

ENTRY_SHOW(head, score, "%u", it.score);
ENTRY_SHOW(head, priority, "%u", it.priority);
ENTRY_SHOW(head, pin_ms, "%u", it.pin_ms);
ENTRY_SHOW(head, hints, "%llu", it.nr_hints);
ENTRY_SHOW(head, touched_pages, "%llu", it.touched_pages);
ENTRY_SHOW(head, written_pages, "%llu", it.written_pages);

static struct attribute *head_attrs[] = {
	&head_score_attr.attr,
	&head_priority_attr.attr,
	&head_pin_ms_attr.attr,
	&head_hints_attr.attr,
	&head_touched_pages_attr.attr,
	&head_written_pages_attr.attr,
	NULL,
};
ATTRIBUTE_GROUPS(head);

static const char *phase_name(u8 phase)
{
	switch (phase) {
	case CXL_KV_PHASE_PREFILL:
		return "prefill";
	case CXL_KV_PHASE_DECODE:
		return "decode";
	}
	return "unknown";
}

ENTRY_SHOW(slot, position, "%u", it.position);
ENTRY_SHOW(slot, phase, "%s", phase_name(it.phase));
ENTRY_SHOW(slot, parked, "%u", it.parked);
ENTRY_SHOW(slot, hints, "%llu", it.nr_hints);

static struct attribute *slot_attrs[] = {
	&slot_position_attr.attr,
	&slot_phase_attr.attr,
	&slot_parked_attr.attr,
	&slot_hints_attr.attr,
	NULL,
};
ATTRIBUTE_GROUPS(slot);

static const struct kobj_type head_type = {
	.release = entry_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = head_groups,
};

static const struct kobj_type slot_type = {
	.release = entry_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = slot_groups,
};

static void remove_entries(struct cxl_kv_arena_dir *dir)
{
	while (dir->nr) {
		kobject_del(dir->entries[--dir->nr]);
		kobject_put(dir->entries[dir->nr]);
	}
	kobject_put(dir->kobj);
	dir->kobj = NULL;
	kvfree(dir->entries);
	dir->entries = NULL;
	atomic_sub(dir->nr_reserved, &nr_entries);
	dir->nr_reserved = 0;
}

static int add_entry(struct cxl_kv_arena *arena, struct cxl_kv_arena_dir *dir,
		     const struct kobj_type *type)
{
	struct entry *entry = kzalloc(sizeof(*entry), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!entry)
		return -ENOMEM;
	entry->arena = arena;
	entry->nr = dir->nr;
	ret = kobject_init_and_add(&entry->kobj, type, dir->kobj, "%u", entry->nr);
	if (ret)
		kobject_put(&entry->kobj);
	else
		dir->entries[dir->nr++] = &entry->kobj;
	return ret;
}

/* The directory @name with @nr entries; without any where that were too many. */
static int add_entries(struct cxl_kv_arena *arena, struct cxl_kv_arena_dir *dir, const char *name,
		       const struct kobj_type *type, u32 nr)
{
	int ret = -ENOMEM;

	if (nr > MAX_ENTRIES)
		return 0;
	dir->nr_reserved = nr;
	if (atomic_add_return(nr, &nr_entries) > MAX_ENTRIES) {
		ret = 0;
		goto err;
	}
	dir->entries = kvcalloc(nr, sizeof(*dir->entries), GFP_KERNEL_ACCOUNT);
	dir->kobj = kobject_create_and_add(name, &arena->dev.kobj);
	if (!dir->entries || !dir->kobj)
		goto err;
	while (dir->nr < nr) {
		ret = add_entry(arena, dir, type);
		if (ret)
			goto err;
	}
	return 0;
err:
	remove_entries(dir);
	return ret;
}

int cxl_kv_sysfs_add_arena(struct cxl_kv_arena *arena)
{
	int ret;

	device_initialize(&arena->dev);
	arena->dev.class = &cxl_kv_class;
	arena->dev.type = &arena_type;
	/* They come and go with processes: nothing for udev. */
	dev_set_uevent_suppress(&arena->dev, true);
	ret = dev_set_name(&arena->dev, "arena%u", arena->id);
	if (ret)
		return ret;
	ret = device_add(&arena->dev);
	if (ret)
		return ret;
	ret = add_entries(arena, &arena->head_dir, "heads", &head_type, arena->nr_heads);
	if (!ret)
		ret = add_entries(arena, &arena->slot_dir, "slots", &slot_type,
				  arena->geometry.nr_slots);
	if (ret)
		cxl_kv_sysfs_del_arena(arena);
	return ret;
}

void cxl_kv_sysfs_del_arena(struct cxl_kv_arena *arena)
{
	remove_entries(&arena->slot_dir);
	remove_entries(&arena->head_dir);
	device_del(&arena->dev);
}
