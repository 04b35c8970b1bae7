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
 * State table: one __u64 a block, in a sealed memfd that client and manager both map. The manager
 * alone changes STATE, TIER, CLEAN and GENERATION; the client changes LEASES; each by
 * compare-and-swap on the whole word. The manager believes nothing it reads here but the lease
 * count, and that count can only keep the client's own blocks from being spilled.
 *
 * A manager with a time limit for leases counts AGE up while LEASES is not 0, a client puts it
 * back to 0 with each lease. At its end the manager moves LEASES to EXPIRED, which saturates; so
 * many later unleases mean leases that are over, and must not take one that was made since.
 */
#define CXL_KV_WORD_STATE_MASK		0x7ull
#define CXL_KV_WORD_CLEAN		(1ull << 3)	/* store holds the same bytes */
#define CXL_KV_WORD_TIER_SHIFT		4		/* enum cxl_kv_tier, 2 bits */
#define CXL_KV_WORD_TIER_MASK		(0x3ull << 4)
#define CXL_KV_WORD_AGE_SHIFT		6		/* of LEASES, in thirds of the limit */
#define CXL_KV_WORD_AGE_MASK		(0x3ull << 6)
#define CXL_KV_WORD_AGE_ONE		(1ull << 6)
#define CXL_KV_WORD_EXPIRED_SHIFT	8
#define CXL_KV_WORD_EXPIRED_MASK	(0xffull << 8)
#define CXL_KV_WORD_EXPIRED_ONE		(1ull << 8)
#define CXL_KV_WORD_EXPIRED_MAX		0xffull
#define CXL_KV_WORD_LEASES_SHIFT	16
#define CXL_KV_WORD_LEASES_MASK		(0xffffull << 16)
#define CXL_KV_WORD_LEASES_ONE		(1ull << 16)
#define CXL_KV_WORD_LEASES_MAX		0xffffull
#define CXL_KV_WORD_GENERATION_SHIFT	32		/* +1 at every state change */

/**
 * enum cxl_kv_state - STATE of a block
 * @CXL_KV_EMPTY: no page was ever made, or the block was dropped
 * @CXL_KV_RESIDENT: readable and writable in the tier that TIER names
 * @CXL_KV_SPILLING: write-protected while it is copied out. Readable. A lease or a write aborts it
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
	/* private: */
	__u8 pad0[56];
	/* public: */
	__u32 tail;
	__u32 nr_bad;
	/* private: */
	__u8 pad1[56];
	/* public: */
	__u32 nr_entries;
	/* private: */
	__u32 reserved[15];
};

#define CXL_KV_RING_ENTRIES_OFFSET	4096
#define CXL_KV_RING_MIN_ENTRIES		64
#define CXL_KV_RING_MAX_ENTRIES		(1u << 16)

/*
 * ioctls of /dev/cxl_kv.
 *
 * Every argument is a structure that begins with its size in bytes, so that it can grow: fields
 * are only ever added at the end, an older kernel accepts a longer structure whose unknown tail is
 * zero, a newer one treats what an older program did not pass as zero. Unknown flags and reserved
 * fields must be zero. Every errno has one meaning on all of them:
 *
 *	E2BIG		non-zero bytes after the fields this kernel knows
 *	EAGAIN		nothing to report now (poll)
 *	EBADF		a descriptor is not open, or not a file of the kind asked for
 *	EBUSY		somebody else has it: the manager's seat, the mapping of a ring
 *	EEXIST		the range or the memory file belongs to an arena already
 *	EFAULT		a pointer cannot be read or written
 *	EINVAL		size below the first version's, or a field out of its range
 *	ENOENT		no arena with this number that the caller may name
 *	ENOMEM		no memory
 *	ENOSPC		a limit on the number of arenas is reached, or room for an
 *			answer is too small
 *	ENOTTY		no such ioctl
 *	EOPNOTSUPP	a flag or a reserved field that this kernel does not know
 *	EPERM		the caller lacks the capability, is not the manager, or is not the
 *			process that registered the arena or opened the userfaultfd
 */
#define CXL_KV_IOC_TYPE	0xD4

enum {
	CXL_KV_CMD_INFO = 0x00,
	CXL_KV_CMD_ATTACH_MANAGER = 0x01,
	CXL_KV_CMD_ARENA_REGISTER = 0x02,
	CXL_KV_CMD_ARENA_UNREGISTER = 0x03,
	CXL_KV_CMD_NEXT_EVENT = 0x04,
	CXL_KV_CMD_ARENA_GET = 0x05,
	CXL_KV_CMD_ARENA_SET_KEY = 0x06,
	CXL_KV_CMD_HINT = 0x07,
	CXL_KV_CMD_HINTS_READ = 0x08,
	CXL_KV_CMD_HEADS_READ = 0x09,
	CXL_KV_CMD_SLOTS_READ = 0x0a,
	CXL_KV_CMD_SAMPLE_SET = 0x0b,
};

/* Limits on arenas: of one open file, and of the module. */
#define CXL_KV_MAX_ARENAS_PER_FILE	16
#define CXL_KV_MAX_ARENAS		1024

/* Most hints in one call of CXL_KV_IOC_HINT or CXL_KV_IOC_HINTS_READ. */
#define CXL_KV_MAX_HINTS		4096

/* What a module can do, in cxl_kv_info.features. */
#define CXL_KV_FEATURE_HINTS		(1ull << 0)	/* CXL_KV_IOC_HINT, rings */
#define CXL_KV_FEATURE_SAMPLE_ACCESSED	(1ull << 1)	/* CXL_KV_SAMPLE_ACCESSED */
#define CXL_KV_FEATURE_SAMPLE_REFAULT	(1ull << 2)	/* CXL_KV_SAMPLE_REFAULT */
#define CXL_KV_FEATURE_FLUSH_TLB	(1ull << 3)	/* CXL_KV_SAMPLE_FLUSH_TLB */

/**
 * struct cxl_kv_info - ioctl(CXL_KV_IOC_INFO)
 * @size: sizeof(struct cxl_kv_info)
 * @flags: must be zero
 * @abi_version: out: CXL_KV_ABI_VERSION of the module
 * @version: out: release of the module, major << 16 | minor << 8 | patch
 * @features: out: CXL_KV_FEATURE_ bits
 * @nr_arenas: out: arenas registered now, by all processes
 * @has_manager: out: 1 while a manager is attached
 *
 * Anyone who can open the device may ask.
 */
struct cxl_kv_info {
	__u32 size;
	__u32 flags;
	__u32 abi_version;
	__u32 version;
	__aligned_u64 features;
	__u32 nr_arenas;
	__u32 has_manager;
};
#define CXL_KV_IOC_INFO _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_INFO)

/**
 * struct cxl_kv_attach_manager - ioctl(CXL_KV_IOC_ATTACH_MANAGER)
 * @size: sizeof(struct cxl_kv_attach_manager)
 * @flags: must be zero
 *
 * Makes this open file the manager: one at a time, until it is closed. Needs CAP_SYS_NICE or
 * CAP_SYS_ADMIN. Every arena there is becomes an event (CXL_KV_EVENT_ARENA_ADDED) for the new
 * manager. poll(2) says POLLIN while there are events.
 */
struct cxl_kv_attach_manager {
	__u32 size;
	__u32 flags;
};
#define CXL_KV_IOC_ATTACH_MANAGER _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_ATTACH_MANAGER)

/**
 * struct cxl_kv_arena_register - ioctl(CXL_KV_IOC_ARENA_REGISTER)
 * @size: sizeof(struct cxl_kv_arena_register)
 * @flags: must be zero
 * @geometry: shape of the arena
 * @base: address of its mapping in the calling process: shared, of @memory_fd
 *	from offset 0, over all blocks. The file's size must be exactly that
 * @memory_fd: memfd, sealed with SHRINK | GROW | SEAL
 * @uffd: userfaultfd of the calling process
 * @table_fd: memfd with the state table, one __u64 a block, sealed likewise
 * @ring_entries: hints that the ring holds: a power of two between
 *	CXL_KV_RING_MIN_ENTRIES and CXL_KV_RING_MAX_ENTRIES, or 0 for no ring
 * @nr_layer_windows: @geometry.nr_layers, or 0 where all attention is full
 * @arena: out: number of the arena, never 0
 * @layer_windows: pointer to @nr_layer_windows __u32, attention window of each
 *	layer in tokens, 0 = full
 * @ring_offset: out: mmap(2) offset of the ring on this file, or 0
 *
 * The module keeps the three files, and hands them to every manager that attaches, until the arena
 * ends: by CXL_KV_IOC_ARENA_UNREGISTER, when the process exits or calls execve(2), or when this
 * open file is closed by its last holder. The arena belongs to the address space that registered
 * it; a child that inherited the open file can do nothing with it.
 */
struct cxl_kv_arena_register {
	__u32 size;
	__u32 flags;
	struct cxl_kv_geometry geometry;
	__aligned_u64 base;
	__s32 memory_fd;
	__s32 uffd;
	__s32 table_fd;
	__u32 ring_entries;
	__u32 nr_layer_windows;
	__u32 arena;
	__aligned_u64 layer_windows;
	__aligned_u64 ring_offset;
};
#define CXL_KV_IOC_ARENA_REGISTER _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_ARENA_REGISTER)

/**
 * struct cxl_kv_arena_unregister - ioctl(CXL_KV_IOC_ARENA_UNREGISTER)
 * @size: sizeof(struct cxl_kv_arena_unregister)
 * @flags: must be zero
 * @arena: one that was registered on this open file
 * @reserved: must be zero
 *
 * Ends an arena: the module lets go of its files and tells the manager. The
 * mapping is left as it is.
 */
struct cxl_kv_arena_unregister {
	__u32 size;
	__u32 flags;
	__u32 arena;
	__u32 reserved;
};
#define CXL_KV_IOC_ARENA_UNREGISTER _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_ARENA_UNREGISTER)

/**
 * enum cxl_kv_event_kind - what a manager is told
 * @CXL_KV_EVENT_ARENA_ADDED: get it with CXL_KV_IOC_ARENA_GET
 * @CXL_KV_EVENT_ARENA_REMOVED: unregistered, or its process is gone. Its number names nothing any
 *	more. Not reported where this manager has not read CXL_KV_EVENT_ARENA_ADDED of the arena
 */
enum cxl_kv_event_kind {
	CXL_KV_EVENT_ARENA_ADDED = 1,
	CXL_KV_EVENT_ARENA_REMOVED = 2,
};

/**
 * struct cxl_kv_next_event - ioctl(CXL_KV_IOC_NEXT_EVENT), manager only
 * @size: sizeof(struct cxl_kv_next_event)
 * @flags: must be zero
 * @kind: out: enum cxl_kv_event_kind
 * @arena: out: number of the arena
 *
 * Takes the oldest event. EAGAIN when there is none; it never waits.
 */
struct cxl_kv_next_event {
	__u32 size;
	__u32 flags;
	__u32 kind;
	__u32 arena;
};
#define CXL_KV_IOC_NEXT_EVENT _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_NEXT_EVENT)

/**
 * struct cxl_kv_arena_get - ioctl(CXL_KV_IOC_ARENA_GET), manager only
 * @size: sizeof(struct cxl_kv_arena_get)
 * @flags: must be zero
 * @arena: number of the arena
 * @pid: out: client's process, as the manager's pid namespace numbers it; 0 where it has none
 * @geometry: out: as registered; checked against the limits above
 * @base: out: address of the mapping in the client
 * @key: out: what the last CXL_KV_IOC_ARENA_SET_KEY stored, 0 at first
 * @memory_fd: out: new descriptor, close-on-exec
 * @uffd: out: new descriptor, close-on-exec
 * @table_fd: out: new descriptor, close-on-exec
 * @ring_entries: out: as registered
 * @nr_layer_windows: in: room at @layer_windows; out: entries written: 0 or
 *	@geometry.nr_layers. ENOSPC when they do not fit; 0 room asks for none
 * @reserved: must be zero
 * @layer_windows: pointer to room for @nr_layer_windows __u32
 *
 * On an error no descriptor is left open.
 */
struct cxl_kv_arena_get {
	__u32 size;
	__u32 flags;
	__u32 arena;
	__u32 pid;
	struct cxl_kv_geometry geometry;
	__aligned_u64 base;
	__aligned_u64 key;
	__s32 memory_fd;
	__s32 uffd;
	__s32 table_fd;
	__u32 ring_entries;
	__u32 nr_layer_windows;
	__u32 reserved;
	__aligned_u64 layer_windows;
};
#define CXL_KV_IOC_ARENA_GET _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_ARENA_GET)

/**
 * struct cxl_kv_arena_set_key - ioctl(CXL_KV_IOC_ARENA_SET_KEY), manager only
 * @size: sizeof(struct cxl_kv_arena_set_key)
 * @flags: must be zero
 * @arena: number of the arena
 * @reserved: must be zero
 * @key: opaque to the module, which keeps it for the next manager
 */
struct cxl_kv_arena_set_key {
	__u32 size;
	__u32 flags;
	__u32 arena;
	__u32 reserved;
	__aligned_u64 key;
};
#define CXL_KV_IOC_ARENA_SET_KEY _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_ARENA_SET_KEY)

/**
 * struct cxl_kv_hints - ioctl(CXL_KV_IOC_HINT)
 * @size: sizeof(struct cxl_kv_hints)
 * @flags: must be zero
 * @arena: one that this process registered on this open file
 * @nr: number of hints, at most CXL_KV_MAX_HINTS
 * @hints: pointer to @nr struct cxl_kv_hint
 * @nr_taken: out, also on an error: hints taken, from the first
 * @reserved: must be zero
 *
 * The same as putting them into the ring, at the price of a system call. EINVAL
 * at the first hint that is not valid; those before it are taken.
 */
struct cxl_kv_hints {
	__u32 size;
	__u32 flags;
	__u32 arena;
	__u32 nr;
	__aligned_u64 hints;
	__u32 nr_taken;
	__u32 reserved;
};
#define CXL_KV_IOC_HINT _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_HINT)

/**
 * struct cxl_kv_hints_read - ioctl(CXL_KV_IOC_HINTS_READ), manager only
 * @size: sizeof(struct cxl_kv_hints_read)
 * @flags: must be zero
 * @arena: number of the arena
 * @nr: in: room at @hints, at most CXL_KV_MAX_HINTS; out: hints written there
 * @hints: pointer to room for @nr struct cxl_kv_hint
 * @nr_taken: out: valid hints so far, by ring and ioctl
 * @nr_bad: out: entries of the ring so far that were refused
 * @nr_lost: out: valid hints so far that this queue had no room for
 * @nr_dropped: out: what the client says it could not place, as of now
 * @reserved: must be zero
 *
 * Takes the oldest hints, from both ways; each is valid for the geometry. The module keeps up to
 * 1024 of them for an arena beside those in its ring; what comes on top is lost for this stream,
 * but counts in the state of heads and sessions. Never waits: @nr is 0 when there are none.
 */
struct cxl_kv_hints_read {
	__u32 size;
	__u32 flags;
	__u32 arena;
	__u32 nr;
	__aligned_u64 hints;
	__aligned_u64 nr_taken;
	__aligned_u64 nr_bad;
	__aligned_u64 nr_lost;
	__u32 nr_dropped;
	__u32 reserved;
};
#define CXL_KV_IOC_HINTS_READ _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_HINTS_READ)

/**
 * struct cxl_kv_head - what the module knows of a head
 * @score: moving average of the SCORE hints of its blocks, a fifth for each new
 *	one; CXL_KV_SCORE_ONE = 1.0
 * @priority: of its last PIN that has not expired, else CXL_KV_DEFAULT_PRIORITY
 * @pin_ms: what is left of that PIN's lifetime; 0 = no PIN, or one without end
 * @nr_hints: hints that named it
 * @touched_pages: pages that sampling found touched, one more each time
 * @written_pages: of these, written
 */
struct cxl_kv_head {
	__u16 score;
	__u8 priority;
	/* private: */
	__u8 reserved;
	/* public: */
	__u32 pin_ms;
	__aligned_u64 nr_hints;
	__aligned_u64 touched_pages;
	__aligned_u64 written_pages;
};

#define CXL_KV_PHASE_PREFILL	0
#define CXL_KV_PHASE_DECODE	1
#define CXL_KV_PHASE_UNKNOWN	255

/**
 * struct cxl_kv_slot - what the module knows of a session
 * @position: of its last POSITION hint
 * @phase: of its last PHASE hint, CXL_KV_PHASE_UNKNOWN before the first
 * @parked: 1 after PARK, 0 after WAKE and at first
 * @nr_hints: hints that named it
 */
struct cxl_kv_slot {
	__u32 position;
	__u8 phase;
	__u8 parked;
	/* private: */
	__u8 reserved[2];
	/* public: */
	__aligned_u64 nr_hints;
};

/**
 * struct cxl_kv_state_read - ioctl(CXL_KV_IOC_HEADS_READ), ioctl(CXL_KV_IOC_SLOTS_READ),
 *	manager only
 * @size: sizeof(struct cxl_kv_state_read)
 * @flags: must be zero
 * @arena: number of the arena
 * @first: first head or session
 * @nr: in: room at @out; out: entries written, fewer at the end
 * @reserved: must be zero
 * @out: pointer to room for @nr struct cxl_kv_head or struct cxl_kv_slot
 *
 * The state that hints and samples have left, for a manager that starts.
 */
struct cxl_kv_state_read {
	__u32 size;
	__u32 flags;
	__u32 arena;
	__u32 first;
	__u32 nr;
	__u32 reserved;
	__aligned_u64 out;
};
#define CXL_KV_IOC_HEADS_READ _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_HEADS_READ)
#define CXL_KV_IOC_SLOTS_READ _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_SLOTS_READ)

/**
 * enum cxl_kv_sample_way - how accesses are sampled
 * @CXL_KV_SAMPLE_OFF: not at all
 * @CXL_KV_SAMPLE_ACCESSED: read and clear the accessed bits of the client's
 *	page tables
 * @CXL_KV_SAMPLE_REFAULT: unmap one page of each block, from every process; the fault that maps
 *	it again is the access. With a userfaultfd registered for minor faults each costs an
 *	event for the manager, and a page that it had locked is no longer until it touches it
 */
enum cxl_kv_sample_way {
	CXL_KV_SAMPLE_OFF = 0,
	CXL_KV_SAMPLE_ACCESSED = 1,
	CXL_KV_SAMPLE_REFAULT = 2,
};

#define CXL_KV_SAMPLE_FLUSH_TLB		(1u << 0)
#define CXL_KV_SAMPLE_MIN_INTERVAL_MS	10
#define CXL_KV_SAMPLE_MAX_INTERVAL_MS	60000

/**
 * struct cxl_kv_sample_set - ioctl(CXL_KV_IOC_SAMPLE_SET), manager only
 * @size: sizeof(struct cxl_kv_sample_set)
 * @flags: CXL_KV_SAMPLE_FLUSH_TLB, for CXL_KV_SAMPLE_ACCESSED: flush the TLB
 *	after bits were cleared. Without it an access through a translation that
 *	is still cached is not seen, and writes are not told from reads: dirty
 *	bits can only be cleared with it. Emulators see next to nothing without
 * @arena: number of the arena
 * @way: enum cxl_kv_sample_way
 * @interval_ms: time between passes over the arena,
 *	CXL_KV_SAMPLE_MIN_INTERVAL_MS to CXL_KV_SAMPLE_MAX_INTERVAL_MS
 * @budget_permil: CPU time for it, in thousandths of one CPU, 1 to 1000. A pass
 *	that takes longer is spread over several intervals
 *
 * Takes effect at once and ends with the manager. Each pass reports through the tracepoint
 * cxl_kv:cxl_kv_access, for 64 pages that begin at a multiple of 64: number of the arena, first
 * page, a mask of touched pages, a mask of written ones, process. Both ways see accesses by CPUs
 * only. With CXL_KV_SAMPLE_OFF the other fields must be zero.
 */
struct cxl_kv_sample_set {
	__u32 size;
	__u32 flags;
	__u32 arena;
	__u32 way;
	__u32 interval_ms;
	__u32 budget_permil;
};
#define CXL_KV_IOC_SAMPLE_SET _IO(CXL_KV_IOC_TYPE, CXL_KV_CMD_SAMPLE_SET)

#endif /* _UAPI_LINUX_CXL_KV_H */
