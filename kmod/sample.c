// SPDX-License-Identifier: GPL-2.0
/*
 * Sampling: one worker an arena looks at the client's page tables, pass after
 * pass, within a budget of CPU time, and reports what it found by the
 * tracepoint. How a page table is looked at: harvest.c, refault.c.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "internal.h"
#include "trace.h"

static struct workqueue_struct *sample_wq;

int cxl_kv_sample_init(void)
{
	/* Unbound: a pass is CPU work that no queue of others should wait behind. */
	sample_wq = alloc_workqueue("cxl_kv_sample", WQ_UNBOUND, 0);
	return sample_wq ? 0 : -ENOMEM;
}

void cxl_kv_sample_exit(void)
{
	destroy_workqueue(sample_wq);
}

u64 cxl_kv_sample_features(void)
{
	u64 features = CXL_KV_FEATURE_SAMPLE_ACCESSED | CXL_KV_FEATURE_SAMPLE_REFAULT;

	return cxl_kv_can_flush_tlb() ? features | CXL_KV_FEATURE_FLUSH_TLB : features;
}

/* The head of a page; blocks are a power of two of pages. */
static struct cxl_kv_head_state *head_of(struct cxl_kv_arena *arena, u64 page)
{
	u32 block = page / (arena->geometry.block_bytes >> PAGE_SHIFT);

	return &arena->heads[block / arena->blocks_per_head % arena->nr_heads];
}

static void count_word(struct cxl_kv_arena *arena, u64 first_page, u64 touched, u64 written)
{
	struct cxl_kv_head_state *head;
	u64 left = touched;
	int bit;

	for (; left; left &= left - 1) {
		bit = __ffs64(left);
		head = head_of(arena, first_page + bit);
		head->touched_pages++;
		head->written_pages += written >> bit & 1;
	}
	arena->sampler.nr_touched_pages += hweight64(touched);
	arena->sampler.nr_written_pages += hweight64(written);
}

static void report(struct cxl_kv_arena *arena, const struct cxl_kv_touches *touches)
{
	u64 first_page = touches->first_page;
	int i;

	for (i = 0; i < CXL_KV_TOUCH_WORDS; i++, first_page += 64) {
		if (!touches->touched[i])
			continue;
		count_word(arena, first_page, touches->touched[i], touches->written[i]);
		trace_cxl_kv_access(arena->id, first_page, touches->touched[i],
				    touches->written[i], pid_nr(arena->pid));
	}
}

/* Still the client's mapping of the arena at the address it registered? */
static bool maps_arena(const struct cxl_kv_arena *arena, struct vm_area_struct *vma,
		       unsigned long addr)
{
	return vma->vm_file && vma->vm_file->f_mapping == arena->mapping &&
	       vma->vm_flags & VM_SHARED &&
	       linear_page_index(vma, addr) == (addr - arena->base) >> PAGE_SHIFT;
}

/* Looks at what one page table maps from @addr on. Returns where to go on. */
static unsigned long sample_table(struct cxl_kv_arena *arena, unsigned long addr, bool *cleared)
{
	unsigned long stop = arena->base + arena->size_bytes;
	struct cxl_kv_touches touches = {};
	struct vm_area_struct *vma;
	unsigned long end;

	vma = find_vma(arena->mm, addr);
	if (!vma || vma->vm_start >= stop)
		return stop;
	addr = max(addr, vma->vm_start);
	end = min3(pmd_addr_end(addr, stop), vma->vm_end, stop);
	if (!maps_arena(arena, vma, addr))
		return end;

	touches.first_page = ((addr - arena->base) >> PAGE_SHIFT) & ~63ull;
	if (arena->sampler.way == CXL_KV_SAMPLE_ACCESSED)
		cxl_kv_harvest(arena, vma, addr, end, &touches);
	else
		cxl_kv_refault(arena, vma, addr, end, &touches);
	report(arena, &touches);
	*cleared |= touches.cleared;
	return end;
}

/*
 * A client can keep its address space locked for as long as it likes, by a page
 * fault on a file whose server it is itself. Whoever ends sampling waits for the
 * pass, so that the pass waits a millisecond at most and goes on next time.
 */
static bool lock_client(struct mm_struct *mm)
{
	int i;

	for (i = 0; i < 10; i++) {
		if (mmap_read_trylock(mm))
			return true;
		usleep_range(50, 100);
	}
	return false;
}

/* Goes on with the pass until it is through, or until @deadline_ns. */
static void run_pass(struct cxl_kv_arena *arena, u64 deadline_ns)
{
	struct cxl_kv_sampler *sampler = &arena->sampler;
	unsigned long end = arena->base + arena->size_bytes;
	unsigned long addr = arena->base + sampler->next_page * PAGE_SIZE;
	struct mm_struct *mm = arena->mm;
	bool cleared = false, locked;

	/* Nothing to see in a process that is exiting, and no way to keep it from it. */
	if (!mmget_not_zero(mm))
		return;
	locked = lock_client(mm);
	while (locked) {
		addr = sample_table(arena, addr, &cleared);
		if (addr >= end || ktime_get_ns() >= deadline_ns)
			break;
		if (need_resched() || mmap_lock_is_contended(mm)) {
			mmap_read_unlock(mm);
			cond_resched();
			locked = lock_client(mm);
		}
	}
	if (locked)
		mmap_read_unlock(mm);
	else
		sampler->nr_locked_out++;

	if (cleared && sampler->flags & CXL_KV_SAMPLE_FLUSH_TLB)
		cxl_kv_flush_tlb(mm);
	if (addr >= end) {
		addr = arena->base;
		sampler->pass++;
		sampler->nr_passes++;
	}
	sampler->next_page = (addr - arena->base) >> PAGE_SHIFT;
	/* The last reference would tear the address space down, which waits for this work. */
	mmput_async(mm);
}

static void sample_work(struct work_struct *work)
{
	struct cxl_kv_sampler *sampler =
		container_of(to_delayed_work(work), struct cxl_kv_sampler, work);
	struct cxl_kv_arena *arena = container_of(sampler, struct cxl_kv_arena, sampler);
	s64 budget_ns = (s64)sampler->interval_ms * sampler->budget_permil * 1000;
	u64 start_ns = ktime_get_ns(), spent_ns;

	cxl_kv_hints_collect(arena);
	/* What was not used does not add up; what was overrun is paid back first. */
	sampler->credit_ns = min(sampler->credit_ns + budget_ns, budget_ns);
	if (sampler->credit_ns > 0)
		run_pass(arena, start_ns + sampler->credit_ns);

	spent_ns = ktime_get_ns() - start_ns;
	sampler->credit_ns -= spent_ns;
	sampler->spent_ns += spent_ns;
	queue_delayed_work(sample_wq, &sampler->work, msecs_to_jiffies(sampler->interval_ms));
}

void cxl_kv_sampler_create(struct cxl_kv_arena *arena)
{
	mutex_init(&arena->sampler.lock);
	INIT_DELAYED_WORK(&arena->sampler.work, sample_work);
}

void cxl_kv_sampler_stop(struct cxl_kv_arena *arena, bool ended)
{
	struct cxl_kv_sampler *sampler = &arena->sampler;

	mutex_lock(&sampler->lock);
	sampler->ended |= ended;
	cancel_delayed_work_sync(&sampler->work);
	sampler->way = CXL_KV_SAMPLE_OFF;
	mutex_unlock(&sampler->lock);
}

static int check_set(const struct cxl_kv_sample_set *set)
{
	if (set->way == CXL_KV_SAMPLE_OFF)
		return set->flags || set->interval_ms || set->budget_permil ? -EINVAL : 0;
	if (set->way != CXL_KV_SAMPLE_ACCESSED && set->way != CXL_KV_SAMPLE_REFAULT)
		return -EINVAL;
	if (set->flags & CXL_KV_SAMPLE_FLUSH_TLB) {
		if (!cxl_kv_can_flush_tlb())
			return -EOPNOTSUPP;
		if (set->way != CXL_KV_SAMPLE_ACCESSED)
			return -EINVAL;
	}
	if (set->interval_ms < CXL_KV_SAMPLE_MIN_INTERVAL_MS ||
	    set->interval_ms > CXL_KV_SAMPLE_MAX_INTERVAL_MS)
		return -EINVAL;
	return set->budget_permil && set->budget_permil <= 1000 ? 0 : -EINVAL;
}

static int restart(struct cxl_kv_sampler *sampler, const struct cxl_kv_sample_set *set)
{
	int ret = -ENOENT;

	mutex_lock(&sampler->lock);
	cancel_delayed_work_sync(&sampler->work);
	if (sampler->ended)
		goto out;
	sampler->way = set->way;
	sampler->flags = set->flags;
	sampler->interval_ms = set->interval_ms;
	sampler->budget_permil = set->budget_permil;
	sampler->next_page = 0;
	sampler->credit_ns = 0;
	sampler->pass = 0;
	if (sampler->way != CXL_KV_SAMPLE_OFF)
		queue_delayed_work(sample_wq, &sampler->work, 0);
	ret = 0;
out:
	mutex_unlock(&sampler->lock);
	return ret;
}

int cxl_kv_sample_set(struct cxl_kv_cmd *cmd)
{
	const struct cxl_kv_sample_set *set = cmd->buf;
	struct cxl_kv_arena *arena;
	int ret;

	ret = check_set(set);
	if (ret)
		return ret;
	arena = cxl_kv_arena_get(set->arena);
	if (!arena)
		return -ENOENT;
	ret = restart(&arena->sampler, set);
	put_device(&arena->dev);
	return ret;
}
