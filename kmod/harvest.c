// SPDX-License-Identifier: GPL-2.0
/*
 * Accessed-bit harvest: reads and clears the accessed bits of one page table,
 * and with CXL_KV_SAMPLE_FLUSH_TLB the dirty bits.
 *
 * What is taken away here must not be lost to others. A cleared accessed bit
 * becomes the folio's young flag, or its referenced flag where the kernel has no
 * other (no CONFIG_PAGE_IDLE_FLAG), or reclaim would think the page idle. A
 * cleared dirty bit becomes the folio's dirty flag first, and the TLB is
 * flushed before the page-table lock is let go: through a translation that is
 * cached as dirty a CPU would write on without setting the bit again, and
 * reclaim, which trusts a clean entry, would not wait for that.
 */
#include <linux/mm.h>
#include <linux/page_idle.h>
#include <linux/smp.h>
#include <asm/cpufeature.h>
#include <asm/invpcid.h>
#include <asm/special_insns.h>

#include "internal.h"
#include "walk.h"

/*
 * None of the kernel's own flushes is exported to us on all kernels, so this is
 * what they come to on x86: all translations of this CPU but the global ones,
 * of the kernel's and of the user's half of the identifiers.
 */
static void flush_this_cpu(void *unused)
{
	if (cpu_feature_enabled(X86_FEATURE_INVPCID))
		invpcid_flush_all_nonglobals();
	else
		native_write_cr3(__native_read_cr3());
}

bool cxl_kv_can_flush_tlb(void)
{
	/* A paravirtual guest of Xen asks the hypervisor, by calls that are not exported. */
	if (cpu_feature_enabled(X86_FEATURE_XENPV))
		return false;
	/* A write of CR3 flushes the current identifier only, which is all where there are none. */
	return cpu_feature_enabled(X86_FEATURE_INVPCID) || !cpu_feature_enabled(X86_FEATURE_PCID);
}

/*
 * The generation makes CPUs that do not run the mm now flush what they have
 * cached of it before they do; it also orders our changes before the look at who
 * runs it. Where the hardware broadcasts flushes, an identifier may be the mm's
 * on all CPUs, and nobody looks at the generation: then all of them flush now.
 * With the page-table lock held or not, but never with interrupts off.
 */
void cxl_kv_flush_tlb(struct mm_struct *mm)
{
	atomic64_inc_return(&mm->context.tlb_gen);
	if (CXL_KV_TLB_BROADCAST)
		on_each_cpu(flush_this_cpu, NULL, true);
	else
		on_each_cpu_mask(mm_cpumask(mm), flush_this_cpu, NULL, true);
}

static bool test_and_clear(void *entry, int bit)
{
	return test_and_clear_bit(bit, entry);
}

/* The entry of a page table, or a PMD that maps a huge page: on x86 their bits are the same. */
static bool take_young(void *entry, struct folio *folio)
{
	if (!test_and_clear(entry, _PAGE_BIT_ACCESSED))
		return false;
	if (IS_ENABLED(CONFIG_PAGE_IDLE_FLAG))
		folio_set_young(folio);
	else
		folio_set_referenced(folio);
	return true;
}

static bool take_dirty(void *entry, struct folio *folio)
{
	if (!test_bit(_PAGE_BIT_DIRTY, entry))
		return false;
	folio_mark_dirty(folio);
	return test_and_clear(entry, _PAGE_BIT_DIRTY);
}

/* What is to be looked at in one page table. */
struct entries {
	struct mm_struct *mm;
	u64 page;
	u64 nr;
	bool writes;
	struct cxl_kv_touches *touches;
};

static void harvest_huge(pmd_t *pmd, const struct entries *entries)
{
	bool young, dirty = false;
	struct folio *folio;
	spinlock_t *ptl;
	u64 i;

	ptl = pmd_lock(entries->mm, pmd);
	if (!pmd_present(*pmd) || !pmd_leaf(*pmd)) {
		spin_unlock(ptl);
		return;
	}
	folio = page_folio(pmd_page(*pmd));
	young = take_young(pmd, folio);
	if (entries->writes && pmd_write(*pmd))
		dirty = take_dirty(pmd, folio);
	if (dirty)
		cxl_kv_flush_tlb(entries->mm);
	spin_unlock(ptl);

	entries->touches->cleared |= young;
	for (i = 0; (young || dirty) && i < entries->nr; i++)
		cxl_kv_touch(entries->touches, entries->page + i, dirty);
}

/*
 * Clears the accessed bit of an entry that points to a table, and says whether
 * it was set: where it was not, no CPU has walked through here, and the table
 * need not be looked at. Under its lock, or it might turn into a swap entry.
 */
static bool table_was_used(struct mm_struct *mm, pmd_t *pmd)
{
	bool used = true;
	spinlock_t *ptl;

	if (!arch_has_hw_nonleaf_pmd_young())
		return true;
	if (!pmd_young(*pmd))
		return false;
	ptl = pmd_lock(mm, pmd);
	if (cxl_kv_is_table(*pmd))
		used = test_and_clear(pmd, _PAGE_BIT_ACCESSED);
	spin_unlock(ptl);
	return used;
}

static bool harvest_entry(pte_t *pte, u64 page, const struct entries *entries)
{
	pte_t entry = ptep_get(pte);
	struct folio *folio;
	bool young, dirty;

	if (!pte_present(entry) || pte_special(entry) || !pfn_valid(pte_pfn(entry)))
		return false;
	if (!pte_young(entry) && !pte_dirty(entry))
		return false;
	folio = page_folio(pfn_to_page(pte_pfn(entry)));
	young = take_young(pte, folio);
	dirty = entries->writes && pte_write(entry) && take_dirty(pte, folio);
	if (young || dirty)
		cxl_kv_touch(entries->touches, page, dirty);
	return dirty;
}

static void harvest_entries(pte_t *pte, void *arg)
{
	const struct entries *entries = arg;
	bool any_dirty = false;
	u64 i;

	for (i = 0; i < entries->nr; i++)
		any_dirty |= harvest_entry(pte + i, entries->page + i, entries);
	if (any_dirty)
		cxl_kv_flush_tlb(entries->mm);
}

void cxl_kv_harvest(struct cxl_kv_arena *arena, struct vm_area_struct *vma, unsigned long addr,
		    unsigned long end, struct cxl_kv_touches *touches)
{
	struct mm_struct *mm = vma->vm_mm;
	pmd_t *pmd = cxl_kv_find_pmd(mm, addr);
	struct entries entries = {
		.mm = mm,
		.page = (addr - arena->base) >> PAGE_SHIFT,
		.nr = (end - addr) >> PAGE_SHIFT,
		.writes = arena->sampler.flags & CXL_KV_SAMPLE_FLUSH_TLB,
		.touches = touches,
	};
	pmd_t entry;

	if (!pmd)
		return;
	entry = pmdp_get_lockless(pmd);
	if (pmd_present(entry) && pmd_leaf(entry)) {
		harvest_huge(pmd, &entries);
	} else if (cxl_kv_is_table(entry) && table_was_used(mm, pmd)) {
		touches->cleared = true;
		cxl_kv_with_table(mm, pmd, addr, harvest_entries, &entries);
	}
}
