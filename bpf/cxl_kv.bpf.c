// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Samples page accesses of arenas and counts them by head; no policy. Sources:
 * the module's tracepoint (accessed bits, or unmap and refault), memory samples
 * of the PMU where it delivers addresses, page faults and migrations.
 *
 * Raw tracepoints give their arguments as they are, so no kernel structure is
 * read and the object needs neither vmlinux.h nor relocation.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>

#include "cxl_kv_bpf.h"

/* Knobs, set between open and load. */
const volatile __u32 ring_enabled = 1;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CXL_KV_BPF_MAX_ARENAS);
	__type(key, __u64); /* the module's arena id; without a module the daemon's number */
	__type(value, struct cxl_kv_bpf_arena);
} arenas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CXL_KV_BPF_MAX_ARENAS);
	__type(key, __u32);   /* process */
	__type(value, __u64); /* key into arenas */
} clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CXL_KV_BPF_MAX_HEADS);
	__type(key, struct cxl_kv_bpf_head_key);
	__type(value, struct cxl_kv_bpf_head);
} heads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} touched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cxl_kv_bpf_totals);
} totals SEC(".maps");

static struct cxl_kv_bpf_totals *get_totals(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

static struct cxl_kv_bpf_head *get_head(__u32 arena, __u32 head)
{
	struct cxl_kv_bpf_head_key key = { arena, head };
	struct cxl_kv_bpf_head zero = {};
	struct cxl_kv_bpf_head *found = bpf_map_lookup_elem(&heads, &key);

	if (found)
		return found;
	bpf_map_update_elem(&heads, &key, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&heads, &key);
}

static __u32 head_of_page(const struct cxl_kv_bpf_arena *arena, __u64 page)
{
	__u32 nr_heads = arena->nr_heads, blocks_per_head = arena->blocks_per_head;

	if (!nr_heads || !blocks_per_head)
		return 0;
	return (page >> ((arena->block_shift - arena->page_shift) & 63)) / blocks_per_head % nr_heads;
}

static __u64 count_bits(__u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return bits * 0x0101010101010101ull >> 56;
}

/* Pages of one head. What the ring had no room for is counted as lost here too. */
static void count_head(__u32 number, __u32 head, __u64 touched_bits, __u64 written_bits, int lost)
{
	struct cxl_kv_bpf_head *counters = get_head(number, head);

	if (!counters)
		return;
	__sync_fetch_and_add(&counters->reads, count_bits(touched_bits & ~written_bits));
	__sync_fetch_and_add(&counters->writes, count_bits(written_bits));
	__sync_fetch_and_add(&counters->samples, 1);
	if (lost)
		__sync_fetch_and_add(&counters->lost, 1);
}

/* True when the record went into the ring, or when nobody wants the ring. */
static int push_touch(const struct cxl_kv_bpf_arena *arena, __u32 source, __u64 first_page, __u64 touched_bits,
		      __u64 written_bits)
{
	struct cxl_kv_bpf_touch *record;

	if (!ring_enabled)
		return 1;
	record = bpf_ringbuf_reserve(&touched, sizeof(*record), 0);
	if (!record)
		return 0;
	record->arena = arena->number;
	record->source = source;
	record->first_page = first_page;
	record->touched = touched_bits;
	record->written = written_bits;
	bpf_ringbuf_submit(record, 0);
	return 1;
}

/* 64 pages of an arena. */
static void count_pages(const struct cxl_kv_bpf_arena *arena, __u32 source, __u64 first_page, __u64 touched_bits,
			__u64 written_bits)
{
	int lost = !push_touch(arena, source, first_page, touched_bits, written_bits);
	struct cxl_kv_bpf_totals *sum = get_totals();
	__u32 first = head_of_page(arena, first_page), last = head_of_page(arena, first_page + 63);
	int i;

	if (sum && source < CXL_KV_BPF_NR_SOURCES) {
		sum->events[source]++;
		sum->lost += lost;
	}
	if (first == last) {
		count_head(arena->number, first, touched_bits, written_bits, lost);
		return;
	}
	/* The record spans heads: page by page. Small blocks and short sessions only. */
	for (i = 0; i < 64; i++) {
		__u64 bit = 1ull << i;

		if (touched_bits & bit)
			count_head(arena->number, head_of_page(arena, first_page + i), bit, written_bits & bit, lost);
	}
}

/* The module's tracepoint: arena id, first page, touched, written. */
SEC("raw_tp/cxl_kv_access")
int on_module_access(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 id = ctx->args[0];
	struct cxl_kv_bpf_arena *arena = bpf_map_lookup_elem(&arenas, &id);

	if (arena)
		count_pages(arena, CXL_KV_BPF_MODULE, ctx->args[1], ctx->args[2], ctx->args[3]);
	return 0;
}

static struct cxl_kv_bpf_arena *arena_of_current(__u64 address)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 *id = bpf_map_lookup_elem(&clients, &pid);
	struct cxl_kv_bpf_arena *arena = id ? bpf_map_lookup_elem(&arenas, id) : NULL;

	if (!arena || address < arena->base || address - arena->base >= arena->bytes)
		return NULL;
	return arena;
}

SEC("raw_tp/page_fault_user")
int on_page_fault(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 address = ctx->args[0];
	struct cxl_kv_bpf_arena *arena = arena_of_current(address);
	struct cxl_kv_bpf_totals *sum = get_totals();
	struct cxl_kv_bpf_head *counters;

	if (!arena)
		return 0;
	if (sum)
		sum->faults++;
	counters = get_head(arena->number, head_of_page(arena, (address - arena->base) >> (arena->page_shift & 63)));
	if (counters)
		__sync_fetch_and_add(&counters->faults, 1);
	return 0;
}

SEC("raw_tp/mm_migrate_pages")
int on_migrate(struct bpf_raw_tracepoint_args *ctx)
{
	struct cxl_kv_bpf_totals *sum = get_totals();

	if (sum) {
		sum->migrated_pages += ctx->args[0];
		sum->migrate_failed_pages += ctx->args[1];
	}
	return 0;
}

/* IBS or PEBS: the sample carries the address that was accessed. */
SEC("perf_event")
int on_pmu_sample(struct bpf_perf_event_data *ctx)
{
	struct cxl_kv_bpf_arena *arena = arena_of_current(ctx->addr);
	__u64 page;

	if (!arena)
		return 0;
	page = (ctx->addr - arena->base) >> (arena->page_shift & 63);
	count_pages(arena, CXL_KV_BPF_PMU, page & ~63ull, 1ull << (page & 63), 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
