/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the module share.
 *
 * Lock order, outermost first:
 *	mmap_lock of a client (held by the caller of mmap, taken for sampling)
 *	cxl_kv_registry.lock: which arenas and which manager there are
 * User memory is never touched under cxl_kv_registry.lock, since a fault takes
 * the mmap_lock.
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

/*
 * An arena lives as long as references to @dev. It is announced (found by
 * number, shown in sysfs, listed for the manager) from registration until it
 * is retired: unregistered, or its mm gone.
 */
struct cxl_kv_arena {
	struct device dev;
	u32 id;

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
	struct mm_struct *mm; /* never dereferenced without mmget_not_zero */
	struct mmu_notifier notifier;

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

/* node.c */
enum cxl_kv_node_origin {
	CXL_KV_NODE_ADOPTED, /* was online before us; we only describe it */
	CXL_KV_NODE_ADDED,   /* hot-added by us; ours to remove */
};

struct cxl_kv_node {
	struct device dev;
	struct list_head link;
	enum cxl_kv_node_origin origin;
	int nid;
	u64 base;
	u64 size_bytes;
	int adistance;
	const char *adistance_source;

	struct mutex lock; /* of removal */
	bool present;	   /* false once removed */
	int mgid;
	char *res_name; /* in /proc/iomem while the memory is present: must outlive it */
	struct memory_dev_type *mtype;
};

int cxl_kv_nodes_init(void);
void cxl_kv_nodes_exit(void);
int cxl_kv_node_remove(struct cxl_kv_node *node);
void cxl_kv_node_free(struct cxl_kv_node *node);

/* sysfs.c */
int cxl_kv_sysfs_init(void);
void cxl_kv_sysfs_exit(void);
/* Consumes the node where it fails. */
int cxl_kv_sysfs_add_node(struct cxl_kv_node *node);
/* Leaves the last put_device() to the caller in every case. */
int cxl_kv_sysfs_add_arena(struct cxl_kv_arena *arena);

#endif /* CXL_KV_INTERNAL_H */
