/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the module share.
 *
 * Lock order, outermost first:
 *	cxl_kv_sampler.lock: whether an arena is sampled
 *	mmap_lock of a client (held by the caller of mmap, tried for sampling)
 *	cxl_kv_registry.lock: which arenas and which manager there are
 *	page-table locks
 * cxl_kv_arena.hint_lock, what hints there are, nests in none of them and none
 * nests in it. User memory is never touched under it or under the registry's
 * lock, since a fault takes the mmap_lock.
 */
#ifndef CXL_KV_INTERNAL_H
#define CXL_KV_INTERNAL_H

#include <linux/device.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <uapi/linux/cxl_kv.h>

#include "compat.h"

/* main.c: one open file of /dev/cxl_kv */
struct cxl_kv_file {
	struct list_head arenas; /* registered on it; registry lock */
	u32 nr_arenas;
};

/* One call of an ioctl: the argument is copied to @buf, its size, tail and flags are checked. */
struct cxl_kv_cmd {
	struct cxl_kv_file *file;
	void __user *user;
	u32 user_size;
	size_t size;
	void *buf;
};

int cxl_kv_respond(const struct cxl_kv_cmd *cmd);

/* arena.c */
enum cxl_kv_arena_file {
	CXL_KV_FILE_MEMORY,
	CXL_KV_FILE_UFFD,
	CXL_KV_FILE_TABLE,
	CXL_KV_NR_FILES,
};

/* hint.c */
#define CXL_KV_QUEUE_ENTRIES 1024

struct cxl_kv_head_state {
	u32 score; /* 16.8 fixed point */
	u8 priority;
	unsigned long pin_expires; /* jiffies; 0 = never */
	u64 nr_hints;
	u64 touched_pages, written_pages; /* by the sampler alone */
};

struct cxl_kv_slot_state {
	u32 position;
	u8 phase;
	bool parked;
	u64 nr_hints;
};

/* sample.c: one for each arena, idle most of the time */
struct cxl_kv_sampler {
	struct delayed_work work;
	struct mutex lock; /* of starting and stopping; the work never takes it */
	bool ended;	   /* the arena is going: never start again */

	/* constant while the work is queued */
	u32 way;
	u32 flags;
	u32 interval_ms;
	u32 budget_permil;

	/* the work's own; others may read the counters */
	u64 next_page;	   /* where the pass goes on */
	s64 credit_ns;	   /* CPU time that may be spent now; negative after an overrun */
	u32 pass;
	u64 nr_passes, nr_touched_pages, nr_written_pages, spent_ns;
	u64 nr_locked_out; /* times that the client's address space was locked */
};

/* sysfs_arena.c: the directories of an arena's heads, or of its sessions */
struct cxl_kv_arena_dir {
	struct kobject *kobj;
	struct kobject **entries;
	u32 nr;
	u32 nr_reserved; /* of the limit on them */
};

/*
 * An arena lives as long as references to @dev. It is announced (found by
 * number, shown in sysfs, listed for the manager) from registration until it
 * is retired: unregistered, or its mm gone.
 */
struct cxl_kv_arena {
	struct device dev;
	u32 id;
	struct cxl_kv_arena_dir head_dir, slot_dir;

	/* constant once announced */
	struct cxl_kv_geometry geometry;
	u32 nr_heads;
	u32 blocks_per_head;
	u32 nr_blocks;
	u64 base;
	u64 size_bytes;
	u32 ring_entries;
	u32 nr_layer_windows;
	u32 *layer_windows;
	struct pid *pid;
	struct address_space *mapping; /* of the memory file; gone when retired */
	struct mm_struct *mm;	       /* never dereferenced without mmget_not_zero */
	struct mmu_notifier notifier;

	/* hint_lock: hints, and what they have left */
	struct mutex hint_lock;
	struct cxl_kv_ring *ring; /* shared with the client, which may write anything */
	u32 ring_tail;
	struct cxl_kv_hint *queue; /* CXL_KV_QUEUE_ENTRIES, for the manager */
	u32 queue_head, queue_tail; /* free-running */
	u64 nr_taken, nr_bad, nr_lost;
	struct cxl_kv_head_state *heads;
	struct cxl_kv_slot_state *slots;
	atomic_t nr_ring_maps;

	struct cxl_kv_sampler sampler;

	/* registry lock */
	bool retired;
	struct file *files[CXL_KV_NR_FILES]; /* until retired */
	struct list_head owner_link;	     /* cxl_kv_file.arenas */
	struct list_head event_link;	     /* cxl_kv_registry.events */
	enum cxl_kv_event_kind event;	     /* valid while event_link is on the list */
	u64 key;
};

struct cxl_kv_registry {
	struct mutex lock; /* all below, and what arenas and files say is under it */
	struct xarray arenas; /* by number */
	u32 nr_arenas;
	struct cxl_kv_file *manager;
	struct list_head events; /* arenas with something to tell, each with a reference */
	wait_queue_head_t wait;	 /* manager's poll */
};

extern struct cxl_kv_registry cxl_kv_registry;

int cxl_kv_arena_register(struct cxl_kv_cmd *cmd);
int cxl_kv_arena_unregister(struct cxl_kv_cmd *cmd);
void cxl_kv_arenas_close(struct cxl_kv_file *file);
void cxl_kv_arena_free(struct cxl_kv_arena *arena);
/* The arena @id with a reference (put_device), whoever registered it, or NULL. */
struct cxl_kv_arena *cxl_kv_arena_get(u32 id);

/* The arena of this file and process, with a reference; ERR_PTR. */
struct cxl_kv_arena *cxl_kv_arena_get_own(struct cxl_kv_file *file, u32 id);

/* ring.c */
int cxl_kv_ring_create(struct cxl_kv_arena *arena, u32 nr_entries);
void cxl_kv_ring_free(struct cxl_kv_arena *arena);
u64 cxl_kv_ring_offset(const struct cxl_kv_arena *arena);
int cxl_kv_ring_mmap(struct file *filp, struct vm_area_struct *vma);
/* Hands at most @max new entries to cxl_kv_hint_take(). Under hint_lock. */
void cxl_kv_ring_drain(struct cxl_kv_arena *arena, u32 max);

/* hint.c */
int cxl_kv_hints_create(struct cxl_kv_arena *arena);
void cxl_kv_hints_free(struct cxl_kv_arena *arena);
/* Checks a hint and applies it, -EINVAL when it is refused. Under hint_lock. */
int cxl_kv_hint_take(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint);
/* Empties the ring as far as the queue has room, so that a quiet manager costs no hints. */
void cxl_kv_hints_collect(struct cxl_kv_arena *arena);
int cxl_kv_hint_ioctl(struct cxl_kv_cmd *cmd);
int cxl_kv_hints_read(struct cxl_kv_cmd *cmd);

/* state.c */
void cxl_kv_get_head(const struct cxl_kv_arena *arena, u32 nr, struct cxl_kv_head *head);
void cxl_kv_get_slot(const struct cxl_kv_arena *arena, u32 nr, struct cxl_kv_slot *slot);
int cxl_kv_heads_read(struct cxl_kv_cmd *cmd);
int cxl_kv_slots_read(struct cxl_kv_cmd *cmd);

/* sample.c */
int cxl_kv_sample_init(void);
void cxl_kv_sample_exit(void);
void cxl_kv_sampler_create(struct cxl_kv_arena *arena);
/* Stops sampling; with @ended for good. Waits for a pass that runs. */
void cxl_kv_sampler_stop(struct cxl_kv_arena *arena, bool ended);
int cxl_kv_sample_set(struct cxl_kv_cmd *cmd);
u64 cxl_kv_sample_features(void);

/* Accesses found in one page table: 64 pages a word, the first word begins at a multiple of 64. */
#define CXL_KV_TOUCH_WORDS (PTRS_PER_PTE / 64 + 1)

struct cxl_kv_touches {
	u64 first_page;
	u64 touched[CXL_KV_TOUCH_WORDS];
	u64 written[CXL_KV_TOUCH_WORDS];
	bool cleared; /* bits that the TLB may still have set */
};

static inline void cxl_kv_touch(struct cxl_kv_touches *touches, u64 page, bool written)
{
	u64 bit = page - touches->first_page;

	touches->touched[bit / 64] |= BIT_ULL(bit % 64);
	if (written)
		touches->written[bit / 64] |= BIT_ULL(bit % 64);
}

/*
 * harvest.c, refault.c: look at [@addr, @end), which one page table maps in
 * @vma, a mapping of the arena. Under the mmap_lock.
 */
void cxl_kv_harvest(struct cxl_kv_arena *arena, struct vm_area_struct *vma, unsigned long addr,
		    unsigned long end, struct cxl_kv_touches *touches);
bool cxl_kv_can_flush_tlb(void);
void cxl_kv_flush_tlb(struct mm_struct *mm);
void cxl_kv_refault(struct cxl_kv_arena *arena, struct vm_area_struct *vma, unsigned long addr,
		    unsigned long end, struct cxl_kv_touches *touches);

/* manager.c */
int cxl_kv_manager_attach(struct cxl_kv_cmd *cmd);
int cxl_kv_manager_next_event(struct cxl_kv_cmd *cmd);
int cxl_kv_manager_arena_get(struct cxl_kv_cmd *cmd);
int cxl_kv_manager_set_key(struct cxl_kv_cmd *cmd);
bool cxl_kv_is_manager(const struct cxl_kv_file *file);
void cxl_kv_manager_close(struct cxl_kv_file *file);
__poll_t cxl_kv_manager_poll(struct file *filp, poll_table *table);
/* Both under the registry lock. */
void cxl_kv_event_added(struct cxl_kv_arena *arena);
void cxl_kv_event_removed(struct cxl_kv_arena *arena);

/* sysfs.c */
int cxl_kv_sysfs_init(void);
void cxl_kv_sysfs_exit(void);
/* Leaves the last put_device() to the caller in every case. */
int cxl_kv_sysfs_add_arena(struct cxl_kv_arena *arena);
void cxl_kv_sysfs_del_arena(struct cxl_kv_arena *arena);

#endif /* CXL_KV_INTERNAL_H */
