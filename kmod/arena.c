// SPDX-License-Identifier: GPL-2.0
/*
 * Arenas: what a client registers, checked, and kept until the client's open
 * file closes, its process exits or it takes the arena back. Nothing here
 * reads or writes KV memory.
 *
 * An arena belongs to an mm, not to a process id or an open file: the notifier
 * on the mm retires it at exit and exec, before the address space is torn down.
 */
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/log2.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"
#include "trace.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

struct cxl_kv_registry cxl_kv_registry = {
	.lock = __MUTEX_INITIALIZER(cxl_kv_registry.lock),
	.arenas = XARRAY_INIT(cxl_kv_registry.arenas, XA_FLAGS_ALLOC1),
	.events = LIST_HEAD_INIT(cxl_kv_registry.events),
	.wait = __WAIT_QUEUE_HEAD_INITIALIZER(cxl_kv_registry.wait),
};

static int check_geometry(const struct cxl_kv_geometry *g)
{
	if (!g->nr_slots || g->nr_slots > CXL_KV_MAX_SLOTS)
		return -EINVAL;
	if (!g->nr_layers || g->nr_layers > CXL_KV_MAX_LAYERS)
		return -EINVAL;
	if (!g->nr_kv_heads || g->nr_kv_heads > CXL_KV_MAX_KV_HEADS)
		return -EINVAL;
	if (g->elem_bytes != 1 && g->elem_bytes != 2 && g->elem_bytes != 4)
		return -EINVAL;
	if (!is_power_of_2(g->block_bytes) || g->block_bytes < PAGE_SIZE ||
	    g->block_bytes > CXL_KV_MAX_BLOCK_BYTES)
		return -EINVAL;
	if (!g->head_dim || g->head_dim > g->block_bytes)
		return -EINVAL;
	if (!g->tokens_per_block || g->tokens_per_block > g->block_bytes)
		return -EINVAL;
	if (2ull * g->tokens_per_block * g->head_dim * g->elem_bytes > g->block_bytes)
		return -EINVAL;
	if (!g->tokens_per_slot || g->tokens_per_slot % g->tokens_per_block)
		return -EINVAL;
	return 0;
}

/* Checks the geometry and works out the counts that follow from it. */
static int set_geometry(struct cxl_kv_arena *arena, const struct cxl_kv_geometry *g)
{
	u64 nr;
	int ret;

	ret = check_geometry(g);
	if (ret)
		return ret;
	arena->geometry = *g;
	arena->nr_heads = g->nr_layers * g->nr_kv_heads;
	arena->blocks_per_head = g->tokens_per_slot / g->tokens_per_block;
	/* At most 2^16 slots of 2^20 heads; only then may the third factor come in. */
	nr = (u64)g->nr_slots * arena->nr_heads;
	if (nr > CXL_KV_MAX_BLOCKS)
		return -EINVAL;
	nr *= arena->blocks_per_head;
	if (nr > CXL_KV_MAX_BLOCKS)
		return -EINVAL;
	arena->nr_blocks = nr;
	arena->size_bytes = nr * g->block_bytes;
	return 0;
}

static int copy_windows(struct cxl_kv_arena *arena, const struct cxl_kv_arena_register *reg)
{
	u32 *windows;

	if (!reg->nr_layer_windows)
		return reg->layer_windows ? -EINVAL : 0;
	if (reg->nr_layer_windows != arena->geometry.nr_layers)
		return -EINVAL;
	/* Not memdup_array_user(): that is not charged to the client's memory cgroup. */
	windows = kcalloc(reg->nr_layer_windows, sizeof(*windows), GFP_KERNEL_ACCOUNT);
	if (!windows)
		return -ENOMEM;
	arena->layer_windows = windows;
	arena->nr_layer_windows = reg->nr_layer_windows;
	if (copy_from_user(windows, u64_to_user_ptr(reg->layer_windows),
			   reg->nr_layer_windows * sizeof(*windows)))
		return -EFAULT;
	return 0;
}

/* A memfd that can neither shrink nor grow, nor lose that promise. Seals are never taken back. */
static bool is_sealed_memfd(const struct file *file)
{
	return shmem_mapping(file->f_mapping) &&
	       (READ_ONCE(SHMEM_I(file_inode(file))->seals) & SEALS) == SEALS &&
	       (file->f_mode & (FMODE_READ | FMODE_WRITE)) == (FMODE_READ | FMODE_WRITE);
}

/* Its operations are not exported; the name of its anonymous inode cannot be taken by others. */
static bool is_userfaultfd(const struct file *file)
{
	const struct dentry *dentry = file->f_path.dentry;

	return dentry->d_sb->s_magic == ANON_INODE_FS_MAGIC &&
	       !strcmp(dentry->d_name.name, "[userfaultfd]");
}

/* @bytes, or that rounded up to pages: what a file that is mapped may well be. */
static int get_memfd(int fd, u64 bytes, struct file **out)
{
	loff_t size;

	*out = fget(fd);
	if (!*out || !is_sealed_memfd(*out))
		return -EBADF;
	size = i_size_read(file_inode(*out));
	return size == bytes || size == PAGE_ALIGN(bytes) ? 0 : -EINVAL;
}

static int get_files(struct cxl_kv_arena *arena, const struct cxl_kv_arena_register *reg)
{
	int ret;

	ret = get_memfd(reg->memory_fd, arena->size_bytes, &arena->files[CXL_KV_FILE_MEMORY]);
	if (ret)
		return ret;
	ret = get_memfd(reg->table_fd, (u64)arena->nr_blocks * sizeof(u64),
			&arena->files[CXL_KV_FILE_TABLE]);
	if (ret)
		return ret;
	arena->files[CXL_KV_FILE_UFFD] = fget(reg->uffd);
	if (!arena->files[CXL_KV_FILE_UFFD] || !is_userfaultfd(arena->files[CXL_KV_FILE_UFFD]))
		return -EBADF;
	if (!cxl_kv_uffd_serves(arena->files[CXL_KV_FILE_UFFD], current->mm))
		return -EPERM;
	arena->mapping = arena->files[CXL_KV_FILE_MEMORY]->f_mapping;
	return 0;
}

static void put_files(struct file **files)
{
	int i;

	for (i = 0; i < CXL_KV_NR_FILES; i++)
		if (files[i])
			fput(files[i]);
}

/* The whole range must be shared mappings of the memory file, from offset 0, without a gap. */
static int check_mapping(const struct cxl_kv_arena *arena)
{
	struct mm_struct *mm = current->mm;
	u64 at = arena->base, end;
	struct vm_area_struct *vma;
	int ret = 0;

	if (!IS_ALIGNED(at, PAGE_SIZE) || check_add_overflow(at, arena->size_bytes, &end) ||
	    end > TASK_SIZE_MAX)
		return -EINVAL;

	if (mmap_read_lock_killable(mm))
		return -EINTR; /* to a process that is being killed */
	while (at < end) {
		vma = find_vma(mm, at);
		if (!vma || vma->vm_start > at || !vma->vm_file ||
		    vma->vm_file->f_mapping != arena->mapping || !(vma->vm_flags & VM_SHARED) ||
		    linear_page_index(vma, at) != (at - arena->base) >> PAGE_SHIFT) {
			ret = -EINVAL;
			break;
		}
		at = vma->vm_end;
	}
	mmap_read_unlock(mm);
	return ret;
}

void cxl_kv_arena_free(struct cxl_kv_arena *arena)
{
	put_files(arena->files);
	cxl_kv_ring_free(arena);
	cxl_kv_hints_free(arena);
	put_pid(arena->pid);
	kfree(arena->layer_windows);
	kfree(arena);
}

static struct cxl_kv_arena *build_arena(const struct cxl_kv_arena_register *reg)
{
	struct cxl_kv_arena *arena;
	int ret;

	arena = kzalloc(sizeof(*arena), GFP_KERNEL_ACCOUNT);
	if (!arena)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&arena->owner_link);
	INIT_LIST_HEAD(&arena->event_link);
	cxl_kv_sampler_create(arena);
	arena->base = reg->base;
	arena->pid = get_task_pid(current, PIDTYPE_TGID);

	ret = set_geometry(arena, &reg->geometry);
	if (!ret)
		ret = cxl_kv_hints_create(arena);
	if (!ret)
		ret = cxl_kv_ring_create(arena, reg->ring_entries);
	if (!ret)
		ret = copy_windows(arena, reg);
	if (!ret)
		ret = get_files(arena, reg);
	if (!ret)
		ret = check_mapping(arena);
	if (ret) {
		cxl_kv_arena_free(arena);
		return ERR_PTR(ret);
	}
	return arena;
}

static bool overlaps(const struct cxl_kv_arena *a, const struct cxl_kv_arena *b)
{
	if (a->mapping == b->mapping)
		return true;
	return a->mm == b->mm && a->base < b->base + b->size_bytes &&
	       b->base < a->base + a->size_bytes;
}

/* Gives the arena its number, under which nothing finds it yet. */
static int reserve_number(struct cxl_kv_arena *arena, struct cxl_kv_file *file)
{
	static u32 next; /* under the registry lock: numbers come back as late as possible */
	struct cxl_kv_registry *reg = &cxl_kv_registry;
	int ret = 0;

	mutex_lock(&reg->lock);
	if (file->nr_arenas >= CXL_KV_MAX_ARENAS_PER_FILE || reg->nr_arenas >= CXL_KV_MAX_ARENAS)
		ret = -ENOSPC;
	else
		ret = xa_alloc_cyclic(&reg->arenas, &arena->id, NULL, XA_LIMIT(1, INT_MAX), &next,
				      GFP_KERNEL_ACCOUNT);
	if (ret >= 0) {
		file->nr_arenas++;
		reg->nr_arenas++;
	}
	mutex_unlock(&reg->lock);
	return min(ret, 0);
}

static void release_number(struct cxl_kv_arena *arena, struct cxl_kv_file *file)
{
	mutex_lock(&cxl_kv_registry.lock);
	xa_erase(&cxl_kv_registry.arenas, arena->id);
	cxl_kv_registry.nr_arenas--;
	file->nr_arenas--;
	mutex_unlock(&cxl_kv_registry.lock);
}

/* Makes the arena known, unless it collides with one that is. */
static int announce(struct cxl_kv_arena *arena, struct cxl_kv_file *file)
{
	struct cxl_kv_registry *reg = &cxl_kv_registry;
	struct cxl_kv_arena *other;
	unsigned long id;
	int ret = 0;

	mutex_lock(&reg->lock);
	xa_for_each(&reg->arenas, id, other) {
		if (!overlaps(arena, other))
			continue;
		ret = -EEXIST;
		goto out;
	}
	arena->retired = false;
	xa_store(&reg->arenas, arena->id, arena, GFP_KERNEL_ACCOUNT);
	list_add_tail(&arena->owner_link, &file->arenas);
	cxl_kv_event_added(arena);
	trace_cxl_kv_arena_state(arena->id, pid_nr(arena->pid), CXL_KV_EVENT_ARENA_ADDED);
out:
	mutex_unlock(&reg->lock);
	return ret;
}

/*
 * Nothing finds the arena any more, its files are let go. Idempotent: whoever
 * comes first, the exit of the mm or the client's own call, does it.
 */
static void retire(struct cxl_kv_arena *arena)
{
	struct cxl_kv_registry *reg = &cxl_kv_registry;
	struct file *files[CXL_KV_NR_FILES];

	mutex_lock(&reg->lock);
	if (arena->retired) {
		mutex_unlock(&reg->lock);
		return;
	}
	WRITE_ONCE(arena->retired, true);
	xa_store(&reg->arenas, arena->id, NULL, GFP_KERNEL_ACCOUNT);
	memcpy(files, arena->files, sizeof(files));
	memset(arena->files, 0, sizeof(arena->files));
	cxl_kv_event_removed(arena);
	mutex_unlock(&reg->lock);
	trace_cxl_kv_arena_state(arena->id, pid_nr(arena->pid), CXL_KV_EVENT_ARENA_REMOVED);

	cxl_kv_sampler_stop(arena, true); /* before the mapping it looks at can go */
	cxl_kv_sysfs_del_arena(arena);
	put_files(files);
}

static void mm_release(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	retire(container_of(notifier, struct cxl_kv_arena, notifier));
}

static const struct mmu_notifier_ops notifier_ops = {
	.release = mm_release,
};

/* The arena that this process has registered on this file. Under the registry lock. */
static struct cxl_kv_arena *find_owned(struct cxl_kv_file *file, u32 id)
{
	struct cxl_kv_arena *arena;

	list_for_each_entry(arena, &file->arenas, owner_link)
		if (arena->id == id)
			return arena->mm == current->mm ? arena : ERR_PTR(-EPERM);
	return ERR_PTR(-ENOENT);
}

/* Whoever takes the arena off its owner's list must end it. */
static struct cxl_kv_arena *take_owned(struct cxl_kv_file *file, u32 id)
{
	struct cxl_kv_arena *arena;

	mutex_lock(&cxl_kv_registry.lock);
	arena = find_owned(file, id);
	if (!IS_ERR(arena))
		list_del_init(&arena->owner_link);
	mutex_unlock(&cxl_kv_registry.lock);
	return arena;
}

/* Also waits for a release() of the mm that is under way on another CPU. */
static void end_arena(struct cxl_kv_arena *arena, struct cxl_kv_file *file)
{
	mmu_notifier_unregister(&arena->notifier, arena->mm);
	release_number(arena, file);
	put_device(&arena->dev);
}

static int start_arena(struct cxl_kv_arena *arena, struct cxl_kv_file *file,
		       struct cxl_kv_arena_register *reg)
{
	int ret;

	arena->retired = true; /* until announced */
	arena->mm = current->mm;
	ret = reserve_number(arena, file);
	if (ret) {
		cxl_kv_arena_free(arena);
		return ret;
	}
	reg->arena = arena->id;
	reg->ring_offset = cxl_kv_ring_offset(arena);
	ret = cxl_kv_sysfs_add_arena(arena);
	if (ret)
		goto err_number;
	arena->notifier.ops = &notifier_ops;
	ret = mmu_notifier_register(&arena->notifier, arena->mm);
	if (ret == -EINTR) /* any signal stops it; nothing is done yet: again after its handler */
		ret = -ERESTARTNOINTR;
	if (ret)
		goto err_sysfs;
	ret = announce(arena, file);
	if (ret)
		goto err_notifier;
	return 0;

err_notifier:
	mmu_notifier_unregister(&arena->notifier, arena->mm);
err_sysfs:
	cxl_kv_sysfs_del_arena(arena);
err_number:
	release_number(arena, file);
	put_device(&arena->dev);
	return ret;
}

int cxl_kv_arena_register(struct cxl_kv_cmd *cmd)
{
	struct cxl_kv_arena_register *reg = cmd->buf;
	struct cxl_kv_arena *arena;
	int ret;

	arena = build_arena(reg);
	if (IS_ERR(arena))
		return PTR_ERR(arena);
	ret = start_arena(arena, cmd->file, reg);
	if (ret)
		return ret;
	/* From here another thread may unregister it: only its number is safe to use. */
	ret = cxl_kv_respond(cmd);
	if (ret) {
		arena = take_owned(cmd->file, reg->arena);
		if (!IS_ERR(arena))
			end_arena(arena, cmd->file);
	}
	return ret;
}

int cxl_kv_arena_unregister(struct cxl_kv_cmd *cmd)
{
	const struct cxl_kv_arena_unregister *unreg = cmd->buf;
	struct cxl_kv_arena *arena;

	arena = take_owned(cmd->file, unreg->arena);
	if (IS_ERR(arena))
		return PTR_ERR(arena);
	end_arena(arena, cmd->file);
	return 0;
}

/* The open file goes: no other call on it is under way. */
void cxl_kv_arenas_close(struct cxl_kv_file *file)
{
	struct cxl_kv_arena *arena, *next;

	list_for_each_entry_safe(arena, next, &file->arenas, owner_link) {
		list_del_init(&arena->owner_link);
		end_arena(arena, file);
	}
}

struct cxl_kv_arena *cxl_kv_arena_get_own(struct cxl_kv_file *file, u32 id)
{
	struct cxl_kv_arena *arena;

	mutex_lock(&cxl_kv_registry.lock);
	arena = find_owned(file, id);
	if (!IS_ERR(arena))
		get_device(&arena->dev);
	mutex_unlock(&cxl_kv_registry.lock);
	return arena;
}

struct cxl_kv_arena *cxl_kv_arena_get(u32 id)
{
	struct cxl_kv_arena *arena;

	mutex_lock(&cxl_kv_registry.lock);
	arena = xa_load(&cxl_kv_registry.arenas, id);
	if (arena)
		get_device(&arena->dev);
	mutex_unlock(&cxl_kv_registry.lock);
	return arena;
}
