/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Interface between the cxl_kv module, its manager (cxl-kvd) and its clients
 * (libcxl_kv): the layouts that cross an address space, and the ioctls of
 * /dev/cxl_kv. Everything here is little-endian and has the same layout for
 * 32- and 64-bit callers. In native mode (no module) the same geometry, table
 * and ring layouts live in memfds that the client sends to the manager.
 */
#ifndef _UAPI_LINUX_CXL_KV_H
#define _UAPI_LINUX_CXL_KV_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define CXL_KV_ABI_VERSION 1

/* Limits that both sides check before they use a geometry. */
#define CXL_KV_MAX_LAYERS	1024
#define CXL_KV_MAX_KV_HEADS	1024
#define CXL_KV_MAX_SLOTS	65536
#define CXL_KV_MAX_BLOCK_BYTES	(2u << 20)
#define CXL_KV_MAX_BLOCKS	(1u << 30)

/**
 * struct cxl_kv_geometry - shape of an arena
 * @nr_slots: sessions of equal capacity
 * @nr_layers: transformer layers
 * @nr_kv_heads: KV heads of each layer
 * @head_dim: elements of one key or value vector
 * @elem_bytes: 1, 2 or 4
 * @tokens_per_block: T; a block is K [T][D] then V [T][D]
 * @tokens_per_slot: capacity of one session, a multiple of @tokens_per_block
 * @block_bytes: bytes reserved for a block: a power of two, a multiple of the
 *	page size, at least 2 * T * D * @elem_bytes
 *
 * Block index within the arena, the only name a block has on any interface:
 *	((slot * nr_heads) + layer * nr_kv_heads + kv_head) * blocks_per_head + block
 * with nr_heads = nr_layers * nr_kv_heads and
 * blocks_per_head = tokens_per_slot / tokens_per_block. Its byte offset is the
 * index times @block_bytes.
 */
struct cxl_kv_geometry {
	__u32 nr_slots;
	__u32 nr_layers;
	__u32 nr_kv_heads;
	__u32 head_dim;
	__u32 elem_bytes;
	__u32 tokens_per_block;
	__u32 tokens_per_slot;
	__u32 block_bytes;
};

/*
 * State table: one __u64 a block, in a sealed memfd that client and manager
 * both map. The manager alone changes STATE, TIER, CLEAN and GENERATION; the
 * client alone changes LEASES; each by compare-and-swap on the whole word. The
 * manager believes nothing it reads here but the lease count, and that count
 * can only keep the client's own blocks from being spilled.
 */
#define CXL_KV_WORD_STATE_MASK		0x7ull
#define CXL_KV_WORD_CLEAN		(1ull << 3)	/* store holds the same bytes */
#define CXL_KV_WORD_TIER_SHIFT		4		/* enum cxl_kv_tier, 2 bits */
#define CXL_KV_WORD_TIER_MASK		(0x3ull << 4)
#define CXL_KV_WORD_LEASES_SHIFT	16
#define CXL_KV_WORD_LEASES_MASK		(0xffffull << 16)
#define CXL_KV_WORD_LEASES_ONE		(1ull << 16)
#define CXL_KV_WORD_LEASES_MAX		0xffffull
#define CXL_KV_WORD_GENERATION_SHIFT	32		/* +1 at every state change */

/**
 * enum cxl_kv_state - STATE of a block
 * @CXL_KV_EMPTY: no page was ever made, or the block was dropped
 * @CXL_KV_RESIDENT: readable and writable in the tier that TIER names
 * @CXL_KV_SPILLING: write-protected while it is copied out. Still readable. A
 *	lease taken now makes the spill abort; so does a write
 * @CXL_KV_PUNCHING: past the point of no return of a spill: treat as COLD
 * @CXL_KV_COLD: a hole; the store is authoritative
 * @CXL_KV_RESTORING: being read back
 * @CXL_KV_LOST: could not be restored. Poisoned; make or drop it
 *
 * A lease succeeds at once on RESIDENT and SPILLING. On PUNCHING, COLD and
 * RESTORING the client increments LEASES first and then asks the manager to
 * fetch, so that the block cannot leave again between the two.
 */
enum cxl_kv_state {
	CXL_KV_EMPTY = 0,
	CXL_KV_RESIDENT = 1,
	CXL_KV_SPILLING = 2,
	CXL_KV_PUNCHING = 3,
	CXL_KV_COLD = 4,
	CXL_KV_RESTORING = 5,
	CXL_KV_LOST = 6,
};

enum cxl_kv_tier {
	CXL_KV_TIER_NONE = 0,
	CXL_KV_TIER_HOT = 1,
	CXL_KV_TIER_WARM = 2,
	CXL_KV_TIER_COLD = 3,
};

/**
 * enum cxl_kv_hint_kind - what a hint says
 * @CXL_KV_HINT_SCORE: attention mass @score of each of the blocks named
 * @CXL_KV_HINT_POSITION: session @slot now decodes at token @position
 * @CXL_KV_HINT_PIN: keep the blocks with @priority (0-100), for @lifetime_ms
 *	(0 = until changed). Priority 35 is what a block has without a pin
 * @CXL_KV_HINT_SEAL: the blocks are full and immutable
 * @CXL_KV_HINT_PHASE: session @slot: @position 0 = prefill, 1 = decode
 * @CXL_KV_HINT_PARK: session @slot goes idle; its blocks may leave
 * @CXL_KV_HINT_WAKE: session @slot is about to run; bring its blocks back
 * @CXL_KV_HINT_DROP: the contents of the blocks are no longer needed
 */
enum cxl_kv_hint_kind {
	CXL_KV_HINT_SCORE = 1,
	CXL_KV_HINT_POSITION = 2,
	CXL_KV_HINT_PIN = 3,
	CXL_KV_HINT_SEAL = 4,
	CXL_KV_HINT_PHASE = 5,
	CXL_KV_HINT_PARK = 6,
	CXL_KV_HINT_WAKE = 7,
	CXL_KV_HINT_DROP = 8,
};

#define CXL_KV_DEFAULT_PRIORITY	35
#define CXL_KV_MAX_PRIORITY	100
#define CXL_KV_SCORE_ONE	65535	/* attention mass 1.0 */

/**
 * struct cxl_kv_hint - one hint, 32 bytes
 * @kind: enum cxl_kv_hint_kind
 * @priority: PIN only, else zero
 * @score: SCORE only, mass * CXL_KV_SCORE_ONE, else zero
 * @slot: session
 * @head: layer * nr_kv_heads + kv_head; kinds that name a session ignore it
 * @block: first block of that head
 * @nr_blocks: blocks from there; zero where the kind names a session
 * @position: token position (POSITION) or phase (PHASE), else zero
 * @lifetime_ms: PIN only
 * @reserved: zero
 */
struct cxl_kv_hint {
	__u8 kind;
	__u8 priority;
	__u16 score;
	__u32 slot;
	__u32 head;
	__u32 block;
	__u32 nr_blocks;
	__u32 position;
	__u32 lifetime_ms;
	__u32 reserved;
};

/**
 * struct cxl_kv_ring - header page of a hint ring
 * @head: next entry the producer writes; free-running, entry = head & (nr - 1)
 * @nr_dropped: hints the producer could not place because the ring was full
 * @tail: next entry the consumer reads; free-running
 * @nr_bad: entries the consumer refused
 * @nr_entries: a power of two. Consumers use the number they agreed on at
 *	set-up, never this copy
 *
 * One producer, one consumer. The producer writes the entry, then stores
 * @head with release; the consumer loads it with acquire, copies the entry,
 * validates the copy. Entries begin one page (4096 bytes) after the header.
 */
struct cxl_kv_ring {
	__u32 head;
	__u32 nr_dropped;
	__u8 pad0[56];
	__u32 tail;
	__u32 nr_bad;
	__u8 pad1[56];
	__u32 nr_entries;
	__u32 reserved[15];
};

#define CXL_KV_RING_ENTRIES_OFFSET	4096
#define CXL_KV_RING_MIN_ENTRIES		64
#define CXL_KV_RING_MAX_ENTRIES		(1u << 16)

#endif /* _UAPI_LINUX_CXL_KV_H */
