/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Down a client's page tables with what is inline in the kernel's headers:
 * walk_page_range() and pte_offset_map_lock() are not exported, and
 * apply_to_existing_page_range() warns at a huge page and is gone in newer
 * kernels.
 */
#ifndef CXL_KV_WALK_H
#define CXL_KV_WALK_H

#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/rcupdate.h>

/* The PMD entry that covers @addr, or NULL where there is no table of them. Under the mmap_lock. */
static inline pmd_t *cxl_kv_find_pmd(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t *pud;

	if (pgd_none(*pgd) || pgd_bad(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d) || p4d_bad(*p4d))
		return NULL;
	pud = pud_offset(p4d, addr);
	if (pud_none(*pud) || pud_leaf(*pud) || pud_bad(*pud))
		return NULL;
	return pmd_offset(pud, addr);
}

static inline bool cxl_kv_is_table(pmd_t pmd)
{
	return pmd_present(pmd) && !pmd_leaf(pmd) && !pmd_bad(pmd);
}

/*
 * Calls @look with the entry for @addr of the page table below @pmd, locked, or
 * not at all when there is none. Collapsing into a huge page takes tables away
 * without the mmap_lock: RCU keeps the one we are about to lock, and the second
 * look at @pmd, under its lock, finds out whether it is still the one.
 */
static inline void cxl_kv_with_table(struct mm_struct *mm, pmd_t *pmd, unsigned long addr,
				     void (*look)(pte_t *pte, void *arg), void *arg)
{
	spinlock_t *ptl;
	pmd_t seen;

	rcu_read_lock();
	seen = pmdp_get_lockless(pmd);
	if (cxl_kv_is_table(seen)) {
		ptl = pte_lockptr(mm, &seen);
		spin_lock(ptl);
		if (likely(cxl_kv_is_table(*pmd) && pmd_pfn(*pmd) == pmd_pfn(seen)))
			look(pte_offset_kernel(&seen, addr), arg);
		spin_unlock(ptl);
	}
	rcu_read_unlock();
}

#endif /* CXL_KV_WALK_H */
