// SPDX-License-Identifier: GPL-2.0
/*
 * The hint ring of an arena: pages that the client maps and fills, once for
 * the life of the arena. The client may write anything there at any time: an
 * entry is copied once and only the copy is looked at; position and size of
 * the ring are our own.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "internal.h"

/* mmap offset of arena N's ring: N << RING_SHIFT; wider than the largest ring. */
#define RING_SHIFT 32

static size_t ring_bytes(const struct cxl_kv_arena *arena)
{
	return PAGE_ALIGN(CXL_KV_RING_ENTRIES_OFFSET +
			  (size_t)arena->ring_entries * sizeof(struct cxl_kv_hint));
}

int cxl_kv_ring_create(struct cxl_kv_arena *arena, u32 nr_entries)
{
	if (!nr_entries)
		return 0;
	if (!is_power_of_2(nr_entries) || nr_entries < CXL_KV_RING_MIN_ENTRIES ||
	    nr_entries > CXL_KV_RING_MAX_ENTRIES)
		return -EINVAL;
	arena->ring_entries = nr_entries;
	/* Not vmalloc_user(): that is not charged to the client's memory cgroup. */
	arena->ring = __vmalloc(ring_bytes(arena), GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!arena->ring)
		return -ENOMEM;
	arena->ring->nr_entries = nr_entries;
	return 0;
}

void cxl_kv_ring_free(struct cxl_kv_arena *arena)
{
	vfree(arena->ring);
}

u64 cxl_kv_ring_offset(const struct cxl_kv_arena *arena)
{
	return arena->ring ? (u64)arena->id << RING_SHIFT : 0;
}

static void ring_vm_open(struct vm_area_struct *vma)
{
	struct cxl_kv_arena *arena = vma->vm_private_data;

	get_device(&arena->dev);
	atomic_inc(&arena->nr_ring_maps);
}

static void ring_vm_close(struct vm_area_struct *vma)
{
	struct cxl_kv_arena *arena = vma->vm_private_data;

	atomic_dec(&arena->nr_ring_maps);
	put_device(&arena->dev);
}

/* One mapping is one producer: it is not split. */
static int ring_vm_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	return -EINVAL;
}

static vm_fault_t ring_vm_fault(struct vm_fault *vmf)
{
	struct cxl_kv_arena *arena = vmf->vma->vm_private_data;
	pgoff_t page = vmf->pgoff - (cxl_kv_ring_offset(arena) >> PAGE_SHIFT);

	if (page >= ring_bytes(arena) >> PAGE_SHIFT)
		return VM_FAULT_SIGBUS;
	vmf->page = vmalloc_to_page((void *)arena->ring + (page << PAGE_SHIFT));
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct ring_vm_ops = {
	.open = ring_vm_open,
	.close = ring_vm_close,
	.may_split = ring_vm_may_split,
	.fault = ring_vm_fault,
};

/* The whole ring of one arena, shared. The mapping keeps the arena's memory, not the arena. */
int cxl_kv_ring_mmap(struct file *filp, struct vm_area_struct *vma)
{
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	struct cxl_kv_arena *arena;
	int ret = -EINVAL;

	arena = cxl_kv_arena_get_own(filp->private_data, offset >> RING_SHIFT);
	if (IS_ERR(arena))
		return PTR_ERR(arena);
	if (!arena->ring || offset != cxl_kv_ring_offset(arena) ||
	    vma->vm_end - vma->vm_start != ring_bytes(arena) || !(vma->vm_flags & VM_SHARED))
		goto err_put;
	ret = -EBUSY;
	if (atomic_cmpxchg(&arena->nr_ring_maps, 0, 1))
		goto err_put;
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_private_data = arena;
	vma->vm_ops = &ring_vm_ops;
	return 0;

err_put:
	put_device(&arena->dev);
	return ret;
}

void cxl_kv_ring_drain(struct cxl_kv_arena *arena, u32 max)
{
	struct cxl_kv_ring *ring = arena->ring;
	struct cxl_kv_hint *entries;
	u32 head, nr;

	lockdep_assert_held(&arena->hint_lock);
	if (!ring)
		return;
	/* Pairs with the producer's release: entries before the head are complete. */
	head = smp_load_acquire(&ring->head);
	nr = head - arena->ring_tail;
	if (nr > arena->ring_entries) {
		/* No producer of ours: begin anew where it says it is. */
		arena->nr_bad++;
		arena->ring_tail = head;
		nr = 0;
	}
	entries = (void *)ring + CXL_KV_RING_ENTRIES_OFFSET;
	for (nr = min(nr, max); nr; nr--, arena->ring_tail++) {
		struct cxl_kv_hint hint = entries[arena->ring_tail & (arena->ring_entries - 1)];

		/* The client can still change the entry; the compiler must not look at it again. */
		barrier();
		if (cxl_kv_hint_take(arena, &hint))
			arena->nr_bad++;
	}
	WRITE_ONCE(ring->nr_bad, (u32)arena->nr_bad);
	/* The producer may write over the entries once it sees the tail. */
	smp_store_release(&ring->tail, arena->ring_tail);
}
