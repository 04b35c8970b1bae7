/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libcxl_kv: KV-cache memory that lives in tiers.
 *
 * An engine opens a connection to the manager (cxl-kvd), creates an arena with
 * the geometry of its model, and reads and writes KV blocks in place. Blocks
 * that the engine does not hold a lease on may move between memory nodes or
 * leave memory altogether; touching one brings it back. A lease is the promise
 * that blocks are there and stay.
 *
 * Every function that can fail returns 0 or a negative errno. All functions
 * may be called from several threads, except that an object must not be
 * closed while another thread uses it. A call that needs the manager ends at
 * the latest loss_deadline_ms after its own timeout.
 *
 * After fork() the connection is the parent's: the child does not have the
 * arenas' memory, and calls answer -EPERM there. The child should call
 * cxl_kv_close(), which leaves the parent's arenas alone, or exec.
 *
 * The ABI is unstable: CXL_KV_ABI_VERSION changes with it.
 */
#ifndef CXL_KV_H
#define CXL_KV_H

#include <linux/cxl_kv.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cxl_kv;
struct cxl_kv_arena;

enum cxl_kv_loss {
	CXL_KV_LOSS_WAIT = 0, /* calls wait for a new manager, up to loss_deadline_ms */
	CXL_KV_LOSS_FAIL = 1, /* calls answer -ENOTCONN at once */
};

/* What the elements of an arena with elem_bytes 2 are. */
enum cxl_kv_elem_type {
	CXL_KV_ELEM_UNKNOWN = 0, /* never stored with loss */
	CXL_KV_ELEM_FP16 = 1,
	CXL_KV_ELEM_BF16 = 2,
};

/*
 * How blocks that leave memory are stored. All but RAW are lossy; a block that
 * one cannot hold (a NaN, an infinity), or that would not get smaller, is stored
 * as it is.
 */
enum cxl_kv_cold_format {
	CXL_KV_COLD_DEFAULT =
		0, /* as the manager is configured; RAW unless it was told otherwise */
	CXL_KV_COLD_RAW = 1,
	CXL_KV_COLD_FP8 = 2, /* E4M3 */
	CXL_KV_COLD_INT8 = 3,
	CXL_KV_COLD_INT4 = 4,
};

/* Ranges that one call takes. */
#define CXL_KV_MAX_RANGES 2048

/**
 * struct cxl_kv_options - how to connect; zero-initialise for defaults
 * @size: sizeof(struct cxl_kv_options)
 * @on_manager_loss: enum cxl_kv_loss. Loads and stores to blocks that are out
 *	of memory wait for a manager either way
 * @loss_deadline_ms: 0 = 30,000
 * @elem_type: enum cxl_kv_elem_type, of the arenas of this connection
 * @cold_format: enum cxl_kv_cold_format, likewise; needs @elem_type
 * @socket_path: NULL = $CXL_KV_SOCKET, else /run/cxl-kv/control.sock
 * @name: shown in `cxl-kv list`, up to 64 bytes of UTF-8; NULL = program name
 * @log: gets a line for what no errno can tell: why the manager was not
 *	reached or refused, that it was lost and found. NULL = stderr. Called
 *	from any thread, must not call the library
 * @log_data: passed to @log
 * @tenant: whose quotas the arenas count against, as the manager's table of
 *	tenants has it; NULL = by the process's user. Options of a library
 *	without this field are taken too
 */
struct cxl_kv_options {
	uint32_t size;
	uint32_t on_manager_loss;
	uint32_t loss_deadline_ms;
	uint16_t elem_type;
	uint16_t cold_format;
	const char *socket_path;
	const char *name;
	void (*log)(void *log_data, const char *message);
	void *log_data;
	const char *tenant;
};

/** struct cxl_kv_range - adjacent blocks of one head of one session */
struct cxl_kv_range {
	uint32_t slot;
	uint32_t head;
	uint32_t block;
	uint32_t nr_blocks;
};

/** Version of the library as "major.minor.patch"; static storage. */
const char *cxl_kv_version(void);

/**
 * Connect to the manager.
 * Errors: -ENOENT or -ECONNREFUSED no manager at the socket, -EACCES not
 * permitted, -EPROTO the manager speaks another version or nonsense, -ENOTCONN
 * it hung up, -ETIMEDOUT it did not answer, -EINVAL bad options, -E2BIG options
 * of a newer library that this one does not know, -ENAMETOOLONG, -ENOMEM.
 */
int cxl_kv_open(const struct cxl_kv_options *options, struct cxl_kv **out);

/** Destroy all arenas of the connection and close it. NULL is allowed. */
void cxl_kv_close(struct cxl_kv *kv);

/**
 * Create an arena: reserves address space, makes no page. @layer_window has
 * nr_layers entries, the attention window in tokens, 0 = full; NULL = all full.
 * Errors: -EINVAL geometry out of range (see struct cxl_kv_geometry), -ENOMEM,
 * -ENOTCONN, -ETIMEDOUT manager lost, -EPERM the manager refused the files or
 * there is no userfaultfd to be had, -EOPNOTSUPP the kernel's is too old.
 */
int cxl_kv_arena_create(struct cxl_kv *kv, const struct cxl_kv_geometry *geometry,
			const uint32_t *layer_window, struct cxl_kv_arena **out);

/** Unregister and unmap the arena. No thread may be inside it. NULL is allowed. */
void cxl_kv_arena_destroy(struct cxl_kv_arena *arena);

/** First byte of the arena. Never mremap or munmap it. */
void *cxl_kv_arena_base(const struct cxl_kv_arena *arena);

/** Address of a block, or NULL where an index is out of range. */
void *cxl_kv_block(const struct cxl_kv_arena *arena, uint32_t slot, uint32_t head, uint32_t block);

/** State word of a block (see the CXL_KV_WORD_ masks); 0 where out of range. */
uint64_t cxl_kv_block_word(const struct cxl_kv_arena *arena, uint32_t slot, uint32_t head,
			   uint32_t block);

/**
 * Make blocks: zeroed pages, before first use. Made blocks are left as they
 * are, lost ones become zero again. All or nothing.
 * Errors: -EINVAL, -E2BIG more than CXL_KV_MAX_RANGES, -EBUSY no room before @timeout_ms (nothing
 * was made; unlease or park something and try again), -ENOTCONN, -ETIMEDOUT manager lost.
 */
int cxl_kv_make(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr,
		uint32_t timeout_ms);

/**
 * Lease blocks: on success all are resident and stay where they can be read
 * and written until unleased, or for session.lease_limit_ms of cxl-kvd.toml(5)
 * since the last lease of the block, where that is not 0. All or nothing.
 * Errors: -EINVAL, -E2BIG more than CXL_KV_MAX_RANGES, -ENODATA a block was never made, -EIO a
 * block is lost (recompute it: cxl_kv_make or cxl_kv_drop it first), -EBUSY no room before
 * @timeout_ms, -ENOTCONN, -ETIMEDOUT manager lost, -EOVERFLOW 65,535 leases.
 * @nr_hits, where not NULL, gets the number of blocks that were resident.
 */
int cxl_kv_lease(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr,
		 uint32_t timeout_ms, uint64_t *nr_hits);

/**
 * Give leases back. -EINVAL on a bad range, and nothing is done; -EINVAL also
 * when some of the blocks had no lease, and the leases of the others are back.
 * A lease whose time is over may be given back all the same.
 */
int cxl_kv_unlease(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr);

/**
 * Hint; see enum cxl_kv_hint_kind. Costs no system call. A hint that finds the
 * ring full is dropped and counted, never waited for.
 * Errors: -EINVAL for what the consumer would refuse, -ENOSPC ring full.
 */
int cxl_kv_send_hint(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hint);
/**
 * The same for many, at a fraction of the cost. -EINVAL: one of them is not
 * valid, and none was sent. -ENOSPC: the first ones fitted, the rest is dropped.
 */
int cxl_kv_send_hints(struct cxl_kv_arena *arena, const struct cxl_kv_hint *hints, size_t nr);
int cxl_kv_hint_score(struct cxl_kv_arena *arena, uint32_t slot, uint32_t head, uint32_t block,
		      float mass);
int cxl_kv_hint_position(struct cxl_kv_arena *arena, uint32_t slot, uint32_t position);
int cxl_kv_seal(struct cxl_kv_arena *arena, const struct cxl_kv_range *range);
int cxl_kv_pin(struct cxl_kv_arena *arena, const struct cxl_kv_range *range, uint8_t priority,
	       uint32_t lifetime_ms);

/**
 * Open a session in @slot: its memory policy is set before its first block is
 * made. -EBUSY: the sessions that are active now, with room for the next blocks
 * of each, need all memory, and @retry_ms, where not NULL, says when to ask
 * again; or, with *@retry_ms 0, the slot is open already.
 */
int cxl_kv_session_open(struct cxl_kv_arena *arena, uint32_t slot, uint32_t *retry_ms);
/**
 * A sign of life where no hints tell: the session is active for another
 * session.idle_ms of cxl-kvd.toml(5). Fetches nothing. -ENOENT the slot is not open.
 */
int cxl_kv_session_touch(struct cxl_kv_arena *arena, uint32_t slot);
/** The session goes idle: its blocks may leave memory. */
int cxl_kv_session_park(struct cxl_kv_arena *arena, uint32_t slot);
/**
 * Fetch what is out of memory of the session's tokens @position - @window to
 * @position + @window, in all heads, the nearest first, as far as memory is free:
 * a guess sends nothing else away. Returns when the manager knows; the session is no
 * more active than before. Errors: -EINVAL, -ENOTCONN, -ETIMEDOUT manager lost.
 */
int cxl_kv_session_prefetch(struct cxl_kv_arena *arena, uint32_t slot, uint32_t position,
			    uint32_t window);
/**
 * Bring the session's blocks back: all, or none where there is no room for all.
 * With @timeout_ms 0 returns when the request is queued, else when all are
 * resident. Errors as cxl_kv_lease. -EBUSY: too many sessions are active or
 * being woken; *@retry_ms, where not NULL and not 0, says when to ask again.
 * After an error nothing is on its way any more, and a session that waited in vain for
 * room is parked again where it was: recompute, or ask again.
 */
int cxl_kv_session_wake(struct cxl_kv_arena *arena, uint32_t slot, uint32_t timeout_ms,
			uint32_t *retry_ms);
/** Drop all blocks of the session and free the slot. -EBUSY while any is leased. */
int cxl_kv_session_close(struct cxl_kv_arena *arena, uint32_t slot);

/** Drop the contents of blocks; they become EMPTY. -EBUSY while any is leased, -E2BIG. */
int cxl_kv_drop(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr);

enum cxl_kv_verdict {
	CXL_KV_FETCH = 0,
	CXL_KV_RECOMPUTE = 1,
	CXL_KV_SPLIT = 2, /* compute the first split_tokens, fetch the others meanwhile */
	CXL_KV_DROP = 3,  /* keeping it costs more than its chance to be asked for saves */
};

/* Fetch whenever it is faster, not only where it is @margin times faster. */
#define CXL_KV_DECIDE_LATENCY (1u << 0)
/* The caller can compute the first tokens while the others come. */
#define CXL_KV_DECIDE_CAN_SPLIT (1u << 1)
/* About hot_bytes, warm_bytes and cold_bytes instead of a session. */
#define CXL_KV_DECIDE_BYTES (1u << 2)

/**
 * struct cxl_kv_decide_args - KV that could be fetched or computed again
 * @size: sizeof(struct cxl_kv_decide_args)
 * @flags: CXL_KV_DECIDE_
 * @slot: the session; all its blocks count, wherever they are
 * @reserved: zero
 * @tokens: that would have to be computed
 * @prefill_tokens_per_s: of the caller, at this length; above 0
 * @return_probability: that it is ever asked for, 0 to 1. 1: it is asked for
 *	now. Below 1 the answer is CXL_KV_FETCH, keep it, or CXL_KV_DROP
 * @margin: how many times cheaper a fetch has to be, 1 or more; 0 = 3
 * @hot_bytes: with CXL_KV_DECIDE_BYTES, where the KV is
 * @warm_bytes: likewise
 * @cold_bytes: likewise
 */
struct cxl_kv_decide_args {
	uint32_t size;
	uint32_t flags;
	uint32_t slot;
	uint32_t reserved;
	uint64_t tokens;
	double prefill_tokens_per_s;
	double return_probability;
	double margin;
	uint64_t hot_bytes;
	uint64_t warm_bytes;
	uint64_t cold_bytes;
};

/**
 * struct cxl_kv_decision - the verdict, and what it was reckoned from
 * @verdict: enum cxl_kv_verdict
 * @reserved: zero
 * @split_tokens: of CXL_KV_SPLIT
 * @fetch_ns: bytes / measured bandwidth + queue + what wakes of this client took beside;
 *	UINT64_MAX = no way is known
 * @recompute_ns: tokens / prefill_tokens_per_s
 * @chosen_ns: what the verdict is expected to take
 */
struct cxl_kv_decision {
	uint32_t verdict;
	uint32_t reserved;
	uint64_t split_tokens;
	uint64_t fetch_ns;
	uint64_t recompute_ns;
	uint64_t chosen_ns;
};

/**
 * Ask whether KV is worth fetching, from the bandwidths that the manager
 * measures at its start and tracks in use. One round trip to the manager.
 * Errors: -EINVAL, -E2BIG of a newer library, -ENOTCONN, -ETIMEDOUT manager lost.
 */
int cxl_kv_decide(struct cxl_kv_arena *arena, const struct cxl_kv_decide_args *args,
		  struct cxl_kv_decision *decision);

/** 1 while a manager is connected, 0 while the library waits for one. */
int cxl_kv_connected(const struct cxl_kv *kv);

/* The manager moves and spills nothing by itself (daemon.enabled is false). */
#define CXL_KV_HEALTH_FROZEN (1u << 0)
/* A tier is being emptied, by cxl-kv drain. */
#define CXL_KV_HEALTH_DRAINING (1u << 1)
/* The spill store failed a request or a checksum within the last ten seconds, or was full: blocks
 * may stay in memory that should have left it, and some may be lost. */
#define CXL_KV_HEALTH_STORE_FAILING (1u << 2)
/* There is no room for keyed objects; the manager's log says why. */
#define CXL_KV_HEALTH_NO_OBJECTS (1u << 3)

/**
 * struct cxl_kv_health - how the manager is
 * @size: sizeof(struct cxl_kv_health), set by the caller
 * @flags: CXL_KV_HEALTH_; 0 = all is well
 * @uptime_ms: since the manager's start
 * @hot_bytes, @warm_bytes, @cold_bytes: of KV in the tier, of all clients
 * @hot_limit_bytes, @warm_limit_bytes, @cold_limit_bytes: what it may hold; 0 = no such tier
 * @nr_store_errors: requests that the spill store failed since the manager's start,
 *	for a device, for room or for a checksum
 */
struct cxl_kv_health {
	uint32_t size;
	uint32_t flags;
	uint64_t uptime_ms;
	uint64_t hot_bytes;
	uint64_t hot_limit_bytes;
	uint64_t warm_bytes;
	uint64_t warm_limit_bytes;
	uint64_t cold_bytes;
	uint64_t cold_limit_bytes;
	uint64_t nr_store_errors;
};

/**
 * Ask the manager how it is. Answers within @timeout_ms, whatever on_manager_loss
 * says: 0, and the manager lives; -ENOTCONN, there is none; -ETIMEDOUT, it is there
 * and does not answer. Also -EINVAL (@timeout_ms 0, or another @size), -ENOMEM,
 * -EPERM in a forked child, -EOPNOTSUPP a manager that is older than this call.
 */
int cxl_kv_get_health(struct cxl_kv *kv, struct cxl_kv_health *health, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#include <cxl_kv_advice.h>
#include <cxl_kv_store.h>

#endif /* CXL_KV_H */
