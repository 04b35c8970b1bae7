// SPDX-License-Identifier: GPL-2.0
/*
 * Unmap and refault, the second way to sample: one page of each block, another
 * one each pass, is unmapped; the client maps it again by touching it, and the
 * next pass finds it mapped. Needs nothing but unmap_mapping_range(), and costs
 * a page fault for each access that is found.
 */
#include <linux/hash.h>
#include <linux/mm.h>

#include "internal.h"
#include "walk.h"

/* The page of a block that is unmapped at the end of pass @pass: all in turn, not all in step. */
static u64 sampled_page(u64 block, u32 pass, u32 pages_per_block)
{
	return block * pages_per_block + (hash_64(block, 32) + pass) % pages_per_block;
}

static void copy_entry(pte_t *pte, void *arg)
{
	*(pte_t *)arg = ptep_get(pte);
}

/* 0 not mapped in the client, 1 mapped, 2 mapped and written since it was. */
static int look(struct mm_struct *mm, unsigned long addr)
{
	pmd_t *pmd = cxl_kv_find_pmd(mm, addr);
	pte_t entry = __pte(0);
	pmd_t huge;

	if (!pmd)
		return 0;
	huge = pmdp_get_lockless(pmd);
	if (pmd_present(huge) && pmd_leaf(huge))
		return pmd_dirty(huge) ? 2 : 1;
	cxl_kv_with_table(mm, pmd, addr, copy_entry, &entry);
	if (!pte_present(entry))
		return 0;
	return pte_dirty(entry) ? 2 : 1;
}

static bool within(const struct cxl_kv_arena *arena, u64 page, unsigned long addr,
		   unsigned long end)
{
	unsigned long at = arena->base + (page << PAGE_SHIFT);

	return at >= addr && at < end;
}

static void sample_block(struct cxl_kv_arena *arena, struct mm_struct *mm, u64 block,
			 unsigned long addr, unsigned long end, struct cxl_kv_touches *touches)
{
	u32 pages = arena->geometry.block_bytes >> PAGE_SHIFT, pass = arena->sampler.pass;
	u64 page;
	int seen;

	/* What the last pass unmapped; the first has nothing to look at. */
	page = sampled_page(block, pass, pages);
	if (pass && within(arena, page, addr, end)) {
		seen = look(mm, arena->base + (page << PAGE_SHIFT));
		if (seen)
			cxl_kv_touch(touches, page, seen == 2);
	}
	page = sampled_page(block, pass + 1, pages);
	if (within(arena, page, addr, end) && look(mm, arena->base + (page << PAGE_SHIFT)))
		unmap_mapping_range(arena->mapping, page << PAGE_SHIFT, PAGE_SIZE, 0);
}

void cxl_kv_refault(struct cxl_kv_arena *arena, struct vm_area_struct *vma, unsigned long addr,
		    unsigned long end, struct cxl_kv_touches *touches)
{
	u64 block = (addr - arena->base) / arena->geometry.block_bytes;
	u64 last = (end - 1 - arena->base) / arena->geometry.block_bytes;

	for (; block <= last; block++)
		sample_block(arena, vma->vm_mm, block, addr, end, touches);
}
