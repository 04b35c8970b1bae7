/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory that the library and the manager share for keyed objects: the index
 * of a namespace, which the manager writes and clients read without a system
 * call, and the rings of a client, by which items of work go to the manager
 * and results come back. Private to the two; not installed.
 *
 * Words that both sides touch while the other one runs are accessed atomically.
 */
#ifndef CXL_KV_SHARED_H
#define CXL_KV_SHARED_H

#include <stdint.h>

#define CXL_KV_SHARED_KEY_BYTES 32

/*
 * Index: one page of header, slots, then the ring of events. Linear probing
 * from the slot that the key's hash names. A slot counts the entries that were
 * placed further on after probing it, so that a search ends at the first slot
 * that nobody passed, and an entry can go without leaving a mark.
 */
#define CXL_KV_INDEX_MAGIC 0x31584449564b5843ull /* "CXKVIDX1" */
#define CXL_KV_INDEX_SLOTS_OFFSET 4096
#define CXL_KV_INDEX_MAX_PROBES 256
#define CXL_KV_INDEX_NR_EVENTS 4096 /* a power of two */

enum cxl_kv_index_state {
	CXL_KV_INDEX_FREE = 0,
	CXL_KV_INDEX_PENDING = 1,
	CXL_KV_INDEX_READY = 2,
};

/*
 * word: SEQUENCE in bits 0-31, odd while key and group change; PASSED in bits
 * 32-47; STATE (enum cxl_kv_index_state) in bits 48-55; TIER in bits 56-63.
 */
#define CXL_KV_INDEX_SEQUENCE_MASK 0xffffffffull
#define CXL_KV_INDEX_PASSED_SHIFT 32
#define CXL_KV_INDEX_PASSED_MASK (0xffffull << 32)
#define CXL_KV_INDEX_STATE_SHIFT 48
#define CXL_KV_INDEX_STATE_MASK (0xffull << 48)
#define CXL_KV_INDEX_TIER_SHIFT 56
#define CXL_KV_INDEX_TIER_MASK (0xffull << 56)

struct cxl_kv_index_slot {
	uint64_t word;
	uint64_t key[CXL_KV_SHARED_KEY_BYTES / 8];
	uint64_t group;
	uint64_t pad[2];
};

enum cxl_kv_index_event_kind { CXL_KV_INDEX_STORED = 1, CXL_KV_INDEX_REMOVED = 2 };

/* sequence: number of the event + 1, 0 while it is written. */
struct cxl_kv_index_event {
	uint64_t sequence;
	uint64_t key[CXL_KV_SHARED_KEY_BYTES / 8];
	uint32_t group;
	uint32_t kind; /* enum cxl_kv_index_event_kind */
	uint64_t pad[2];
};

struct cxl_kv_index_header {
	uint64_t magic;
	uint64_t nr_slots;   /* a power of two */
	uint64_t nr_events;  /* written so far */
	uint64_t load_ns[4]; /* by tier: mean time of a load of one object, 0 = none was measured */
};

/* Where the search for a key begins: multiply and fold, for keys that need not be random. */
static inline uint64_t cxl_kv_index_hash(const uint64_t *key, uint64_t group)
{
	const uint64_t odd = 0x9e3779b97f4a7c15ull;
	uint64_t hash = (group + 1) * odd;

	for (int i = 0; i < CXL_KV_SHARED_KEY_BYTES / 8; i++) {
		__extension__ unsigned __int128 product =
			(unsigned __int128)(key[i] ^ hash) * (odd + ((uint64_t)i << 33));

		hash = (uint64_t)product ^ (uint64_t)(product >> 64) ^ key[i];
	}
	return hash;
}

static inline uint64_t cxl_kv_index_bytes(uint64_t nr_slots)
{
	return CXL_KV_INDEX_SLOTS_OFFSET + nr_slots * sizeof(struct cxl_kv_index_slot) +
	       CXL_KV_INDEX_NR_EVENTS * sizeof(struct cxl_kv_index_event);
}

/*
 * Rings: a file of one lane a class. The client produces items and consumes
 * results, the manager the other way round; head and tail run freely. A client
 * has at most CXL_KV_LANE_ENTRIES items out, so results always find room.
 */
enum cxl_kv_lane_class { CXL_KV_LANE_LOAD, CXL_KV_LANE_STORE, CXL_KV_LANE_CALL, CXL_KV_NR_LANES };

#define CXL_KV_LANE_ENTRIES 4096

enum cxl_kv_item_op {
	CXL_KV_ITEM_LOAD = 1,
	CXL_KV_ITEM_STORE = 2,
	CXL_KV_ITEM_RESERVE = 3,
	CXL_KV_ITEM_COMMIT = 4,
	CXL_KV_ITEM_ABORT = 5,
	CXL_KV_ITEM_LOCK = 6,   /* value: owner */
	CXL_KV_ITEM_UNLOCK = 7, /* value: owner */
	CXL_KV_ITEM_DELETE = 8,
	CXL_KV_ITEM_TOUCH = 9,
	CXL_KV_ITEM_PIN = 10,      /* until deadline_ns; 0 = for ever */
	CXL_KV_ITEM_PRIORITY = 11, /* priority */
	CXL_KV_ITEM_CANCEL = 12,   /* value: job, 0 = all; group: enum cxl_kv_lane_class */
	CXL_KV_ITEM_RESET = 13,    /* forget all objects that nobody uses */
	CXL_KV_ITEM_QUOTA = 14,    /* value: bytes of the tenant, 0 = no limit */
	CXL_KV_ITEM_SCORE = 15,    /* value: attention mass, 65535 = 1.0 */
	CXL_KV_ITEM_HELD = 16, /* value: 1 = it lies in the engine's own tier, 0 = it does not */
	CXL_KV_ITEM_ADVICE_END = 17, /* value: id of the advice; flags: CXL_KV_ITEM_DONE or 0 */
};

#define CXL_KV_ITEM_FIRST 1 /* of its key: reserves it where that was not done */
#define CXL_KV_ITEM_LAST 2  /* of its key: commits it */
#define CXL_KV_ITEM_DONE 4  /* the advice was followed */

struct cxl_kv_item {
	uint64_t job;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	uint64_t value;
	uint64_t buffer_offset;
	uint64_t key[CXL_KV_SHARED_KEY_BYTES / 8];
	uint32_t group;
	uint32_t offset; /* in the object */
	uint32_t bytes;
	uint32_t buffer;
	uint32_t ns;
	uint32_t id; /* the result repeats it */
	uint8_t op;  /* enum cxl_kv_item_op */
	uint8_t priority;
	uint16_t flags;
	uint32_t reserved;
};

struct cxl_kv_item_result {
	uint32_t id;
	int32_t result; /* 0 or -errno */
};

/* One cache line for each counter that one side writes. */
struct cxl_kv_lane {
	uint32_t item_head; /* client */
	uint32_t pad0[15];
	uint32_t item_tail; /* manager */
	uint32_t pad1[15];
	uint32_t result_head; /* manager */
	/*
	 * Manager: it looks for items by itself, so the doorbell may be left alone. Clears it
	 * before it sleeps, and then looks once more at item_head; a client reads it after it
	 * wrote item_head. All four sequentially consistent: one of the two sees the other.
	 */
	uint32_t manager_looks;
	uint32_t pad2[14];
	uint32_t result_tail; /* client */
	uint32_t nr_polls;    /* client: looks for a result that found none */
	uint64_t
		nr_lookups; /* client: keys looked up, and found, until it last sent an item here */
	uint64_t nr_hits;
	uint32_t pad4[10];
	struct cxl_kv_item items[CXL_KV_LANE_ENTRIES];
	struct cxl_kv_item_result results[CXL_KV_LANE_ENTRIES];
};

#define CXL_KV_LANES_BYTES (CXL_KV_NR_LANES * sizeof(struct cxl_kv_lane))

/* Files that go with the request for rings: the lanes, the doorbell, one eventfd a class. */
enum { CXL_KV_LANES_FILE, CXL_KV_DOORBELL_FILE, CXL_KV_EVENTS_FILE, CXL_KV_NR_LANE_FILES = 5 };

#endif /* CXL_KV_SHARED_H */
