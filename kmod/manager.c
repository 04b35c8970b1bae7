// SPDX-License-Identifier: GPL-2.0
/*
 * The manager's side: one open file at a time is the manager. It is told of
 * arenas that come and go, and gets their files. All it stores here (keys)
 * outlives it, for the next manager.
 *
 * Events need no memory of their own: an arena is on the list once, with the
 * one thing the manager has yet to learn about it.
 */
#include <linux/capability.h>
#include <linux/fcntl.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/pid.h>
#include <linux/uaccess.h>

#include "internal.h"

static struct cxl_kv_registry *const registry = &cxl_kv_registry;

bool cxl_kv_is_manager(const struct cxl_kv_file *file)
{
	return READ_ONCE(registry->manager) == file;
}

/* Each list entry holds a reference: a removed arena stays until the manager has read of it. */
static void queue_event(struct cxl_kv_arena *arena, enum cxl_kv_event_kind kind)
{
	arena->event = kind;
	get_device(&arena->dev);
	list_add_tail(&arena->event_link, &registry->events);
	wake_up_interruptible(&registry->wait);
}

static void unqueue_event(struct cxl_kv_arena *arena)
{
	list_del_init(&arena->event_link);
	put_device(&arena->dev);
}

void cxl_kv_event_added(struct cxl_kv_arena *arena)
{
	lockdep_assert_held(&registry->lock);
	if (registry->manager)
		queue_event(arena, CXL_KV_EVENT_ARENA_ADDED);
}

void cxl_kv_event_removed(struct cxl_kv_arena *arena)
{
	lockdep_assert_held(&registry->lock);
	if (!list_empty(&arena->event_link)) /* it never knew of it */
		unqueue_event(arena);
	else if (registry->manager)
		queue_event(arena, CXL_KV_EVENT_ARENA_REMOVED);
}

int cxl_kv_manager_attach(struct cxl_kv_cmd *cmd)
{
	struct cxl_kv_arena *arena;
	unsigned long id;
	int ret = 0;

	if (!capable(CAP_SYS_NICE) && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	mutex_lock(&registry->lock);
	if (registry->manager) {
		ret = -EBUSY;
	} else {
		WRITE_ONCE(registry->manager, cmd->file);
		xa_for_each(&registry->arenas, id, arena)
			cxl_kv_event_added(arena);
	}
	mutex_unlock(&registry->lock);
	return ret;
}

/* Not under the registry lock: stopping waits for a pass, which takes as long as its budget. */
static void stop_sampling(void)
{
	struct cxl_kv_arena *arena;
	unsigned long id = 0;

	do {
		mutex_lock(&registry->lock);
		arena = xa_find_after(&registry->arenas, &id, ULONG_MAX, XA_PRESENT);
		if (arena)
			get_device(&arena->dev);
		mutex_unlock(&registry->lock);
		if (arena) {
			cxl_kv_sampler_stop(arena, false);
			put_device(&arena->dev);
		}
	} while (arena);
}

void cxl_kv_manager_close(struct cxl_kv_file *file)
{
	struct cxl_kv_arena *arena, *next;

	if (!cxl_kv_is_manager(file))
		return;
	stop_sampling();
	mutex_lock(&registry->lock);
	list_for_each_entry_safe(arena, next, &registry->events, event_link)
		unqueue_event(arena);
	WRITE_ONCE(registry->manager, NULL);
	mutex_unlock(&registry->lock);
}

__poll_t cxl_kv_manager_poll(struct file *filp, poll_table *table)
{
	__poll_t mask = 0;

	/* Of a file that is not the manager too: epoll asks once, and it may become it. */
	poll_wait(filp, &registry->wait, table);
	if (!cxl_kv_is_manager(filp->private_data))
		return EPOLLERR;
	mutex_lock(&registry->lock);
	if (!list_empty(&registry->events))
		mask = EPOLLIN | EPOLLRDNORM;
	mutex_unlock(&registry->lock);
	return mask;
}

static struct cxl_kv_arena *take_event(enum cxl_kv_event_kind *kind)
{
	struct cxl_kv_arena *arena;

	mutex_lock(&registry->lock);
	arena = list_first_entry_or_null(&registry->events, struct cxl_kv_arena, event_link);
	if (arena) {
		*kind = arena->event;
		list_del_init(&arena->event_link);
	}
	mutex_unlock(&registry->lock);
	return arena;
}

/*
 * The manager did not get to know it: next time. Unless it is of an arena that
 * came and has ended meanwhile, of which there is nothing to know any more.
 */
static void give_event_back(struct cxl_kv_arena *arena, enum cxl_kv_event_kind kind)
{
	mutex_lock(&registry->lock);
	if (kind == CXL_KV_EVENT_ARENA_REMOVED || !arena->retired) {
		arena->event = kind;
		get_device(&arena->dev);
		list_add(&arena->event_link, &registry->events);
	} else if (!list_empty(&arena->event_link)) {
		unqueue_event(arena);
	}
	mutex_unlock(&registry->lock);
}

int cxl_kv_manager_next_event(struct cxl_kv_cmd *cmd)
{
	struct cxl_kv_next_event *event = cmd->buf;
	enum cxl_kv_event_kind kind;
	struct cxl_kv_arena *arena;
	int ret;

	arena = take_event(&kind);
	if (!arena)
		return -EAGAIN;
	event->kind = kind;
	event->arena = arena->id;
	ret = cxl_kv_respond(cmd);
	if (ret)
		give_event_back(arena, kind);
	put_device(&arena->dev); /* the list's */
	return ret;
}

static int copy_windows(const struct cxl_kv_arena *arena, struct cxl_kv_arena_get *get)
{
	u32 room = get->nr_layer_windows;
	u32 nr = arena->nr_layer_windows;

	get->nr_layer_windows = 0;
	if (!room)
		return 0;
	if (room < nr)
		return -ENOSPC;
	if (copy_to_user(u64_to_user_ptr(get->layer_windows), arena->layer_windows,
			 nr * sizeof(u32)))
		return -EFAULT;
	get->nr_layer_windows = nr;
	return 0;
}

/* References to the files, or -ENOENT where the arena has ended meanwhile. */
static int get_files(struct cxl_kv_arena *arena, struct file **files, u64 *key)
{
	int i, ret = 0;

	mutex_lock(&registry->lock);
	if (arena->retired)
		ret = -ENOENT;
	for (i = 0; !ret && i < CXL_KV_NR_FILES; i++)
		files[i] = get_file(arena->files[i]);
	*key = arena->key;
	mutex_unlock(&registry->lock);
	return ret;
}

/* Opens the files in the caller's process and answers; all of it or nothing. */
static int install_files(struct cxl_kv_cmd *cmd, struct file *const *files)
{
	struct cxl_kv_arena_get *get = cmd->buf;
	s32 *fds[CXL_KV_NR_FILES] = {
		[CXL_KV_FILE_MEMORY] = &get->memory_fd,
		[CXL_KV_FILE_UFFD] = &get->uffd,
		[CXL_KV_FILE_TABLE] = &get->table_fd,
	};
	int i, ret;

	for (i = 0; i < CXL_KV_NR_FILES; i++) {
		ret = receive_fd(files[i], NULL, O_CLOEXEC);
		if (ret < 0)
			goto err_close;
		*fds[i] = ret;
	}
	ret = cxl_kv_respond(cmd);
	if (!ret)
		return 0;
err_close:
	while (i--)
		close_fd(*fds[i]);
	return ret;
}

int cxl_kv_manager_arena_get(struct cxl_kv_cmd *cmd)
{
	struct cxl_kv_arena_get *get = cmd->buf;
	struct file *files[CXL_KV_NR_FILES];
	struct cxl_kv_arena *arena;
	int i, ret;

	arena = cxl_kv_arena_get(get->arena);
	if (!arena)
		return -ENOENT;
	get->pid = pid_vnr(arena->pid);
	get->geometry = arena->geometry;
	get->base = arena->base;
	get->ring_entries = arena->ring_entries;
	ret = copy_windows(arena, get);
	if (ret)
		goto out;
	ret = get_files(arena, files, &get->key);
	if (ret)
		goto out;
	ret = install_files(cmd, files);
	for (i = 0; i < CXL_KV_NR_FILES; i++)
		fput(files[i]);
out:
	put_device(&arena->dev);
	return ret;
}

int cxl_kv_manager_set_key(struct cxl_kv_cmd *cmd)
{
	const struct cxl_kv_arena_set_key *set = cmd->buf;
	struct cxl_kv_arena *arena;
	int ret = -ENOENT;

	mutex_lock(&registry->lock);
	arena = xa_load(&registry->arenas, set->arena);
	if (arena) {
		arena->key = set->key;
		ret = 0;
	}
	mutex_unlock(&registry->lock);
	return ret;
}
