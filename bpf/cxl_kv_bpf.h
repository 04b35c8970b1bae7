/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Layouts that the BPF programs and the daemon share: map keys, values, ring records. */
#ifndef CXL_KV_BPF_H
#define CXL_KV_BPF_H

#include <linux/types.h>

#define CXL_KV_BPF_MAX_ARENAS 64
#define CXL_KV_BPF_MAX_HEADS  65536

/* arenas: what is needed to find the head of a page. Filled by the daemon. */
struct cxl_kv_bpf_arena {
	__u64 base; /* address in the client */
	__u64 bytes;
	__u32 page_shift;
	__u32 block_shift; /* log2(block_bytes) */
	__u32 blocks_per_head;
	__u32 nr_heads;
	__u32 number; /* the daemon's */
	__u32 reserved;
};

/* heads: one (layer, KV head) pair of one arena, all its sessions together. */
struct cxl_kv_bpf_head_key {
	__u32 arena; /* the daemon's number */
	__u32 head;
};

struct cxl_kv_bpf_head {
	__u64 reads;   /* pages seen read since they were last looked at */
	__u64 writes;  /* pages seen written */
	__u64 samples; /* looks that found something */
	__u64 faults;  /* page faults of the client in it */
	__u64 lost;    /* samples that did not fit into the ring */
};

/* touched: ring of what was seen, 64 pages a record. */
struct cxl_kv_bpf_touch {
	__u32 arena;
	__u32 source; /* enum cxl_kv_bpf_source */
	__u64 first_page;
	__u64 touched;
	__u64 written;
};

enum cxl_kv_bpf_source {
	CXL_KV_BPF_MODULE = 0,
	CXL_KV_BPF_PMU = 1,
	CXL_KV_BPF_NR_SOURCES = 2,
};

/* totals: one entry a CPU. */
struct cxl_kv_bpf_totals {
	__u64 events[CXL_KV_BPF_NR_SOURCES];
	__u64 lost;
	__u64 migrated_pages; /* by anyone on this host, the daemon included */
	__u64 migrate_failed_pages;
	__u64 faults; /* of arena clients */
};

#endif /* CXL_KV_BPF_H */
