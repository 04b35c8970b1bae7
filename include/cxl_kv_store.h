/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libcxl_kv: objects under keys, in copied mode.
 *
 * An object is bytes of a fixed size, sealed once stored, under a key of 32
 * bytes and a group (layers that share a size, a rank, K or V). Objects lie in
 * memory and in the manager's spill store like the blocks of an arena, and
 * outlive the engine that stored them. A namespace says what has to be equal
 * for one engine to use what another stored.
 *
 * Looking keys up costs no system call. Loads and stores are jobs: submitting
 * one never blocks, a completion comes exactly once by cxl_kv_poll(), and the
 * buffers are the library's until then. Bytes are copied to and from buffers
 * that were registered, or through a page-locked pool of the library.
 *
 * An object is found (CXL_KV_HIT) only when it was committed, whole. What was
 * damaged, at rest or on its way, is an error and no longer found: never other
 * bytes.
 *
 * After the manager was lost all jobs end with -ENOTCONN, look-ups answer
 * CXL_KV_RETRY, and namespaces and buffers come back with the next manager;
 * locks do not.
 *
 * Included by cxl_kv.h.
 */
#ifndef CXL_KV_STORE_H
#define CXL_KV_STORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cxl_kv;
struct cxl_kv_ns;
struct cxl_kv_buffer;

#define CXL_KV_KEY_BYTES 32
#define CXL_KV_SALT_BYTES 32
/* Keys that one job or call takes. */
#define CXL_KV_MAX_KEYS 1024
#define CXL_KV_MAX_GROUPS 256
#define CXL_KV_MAX_OBJECT_BYTES (256u << 20)

struct cxl_kv_key {
	uint8_t bytes[CXL_KV_KEY_BYTES];
	uint32_t group;
};

/**
 * struct cxl_kv_identity - what has to be equal for KV bytes to be reusable
 * @size: sizeof(struct cxl_kv_identity)
 * @nr_layers, @nr_kv_heads, @head_dim, @tokens_per_block: the geometry
 * @tp_rank, @tp_size, @pp_rank, @pp_size: of the engine's part of the model
 * @hash_seed: of the engine's key hash
 * @rope_theta: base of the rotary embedding
 * @model, @revision, @weights_hash, @tokenizer, @attention, @rope_scaling,
 *	@hash_algorithm, @element_type, @layout: texts in UTF-8, ended by a zero;
 *	compared byte by byte, so any spelling will do, and empty is one
 * @tenant_salt: who does not have the same never shares anything
 */
struct cxl_kv_identity {
	uint32_t size;
	uint32_t nr_layers;
	uint32_t nr_kv_heads;
	uint32_t head_dim;
	uint32_t tokens_per_block;
	uint32_t tp_rank;
	uint32_t tp_size;
	uint32_t pp_rank;
	uint32_t pp_size;
	uint32_t reserved;
	uint64_t hash_seed;
	double rope_theta;
	char model[128];
	char revision[64];
	char weights_hash[80];
	char tokenizer[80];
	char attention[64];
	char rope_scaling[64];
	char hash_algorithm[32];
	char element_type[16];
	char layout[32];
	uint8_t tenant_salt[CXL_KV_SALT_BYTES];
};

/** struct cxl_kv_group - one size of objects, 1 to CXL_KV_MAX_OBJECT_BYTES */
struct cxl_kv_group {
	uint32_t group;
	uint32_t object_bytes;
};

/* Drop the contents of a namespace with another identity, if nobody has it open. */
#define CXL_KV_NS_REPLACE 1

/**
 * struct cxl_kv_ns_options - which namespace
 * @size: sizeof(struct cxl_kv_ns_options)
 * @flags: CXL_KV_NS_REPLACE
 * @name: at most 255 bytes of UTF-8
 * @identity: compared with that of the namespace of this name and salt
 * @groups, @nr_groups: all groups, in any order
 */
struct cxl_kv_ns_options {
	uint32_t size;
	uint32_t flags;
	const char *name;
	const struct cxl_kv_identity *identity;
	const struct cxl_kv_group *groups;
	size_t nr_groups;
};

/**
 * Open a namespace, make it where there is none.
 * Errors: -ESTALE its identity is another one: @field, where not NULL, gets the
 * name of the field that differs (cut to @field_bytes), and nothing stored there
 * can be used; -EBUSY the same with CXL_KV_NS_REPLACE, while another has it open;
 * -EINVAL, -ENOSPC too many namespaces, -EOPNOTSUPP the manager has no room for
 * objects, -ENOMEM, -ENOTCONN, -ETIMEDOUT manager lost.
 */
int cxl_kv_ns_open(struct cxl_kv *kv, const struct cxl_kv_ns_options *options, char *field,
		   size_t field_bytes, struct cxl_kv_ns **out);
/** Close it; jobs in it end as they would. Objects stay. NULL is allowed. */
void cxl_kv_ns_close(struct cxl_kv_ns *ns);

enum cxl_kv_found {
	CXL_KV_MISS = 0,
	CXL_KV_HIT = 1,
	CXL_KV_PENDING = 2, /* being stored: a load waits for it, until its deadline */
	CXL_KV_RETRY = 3,   /* no answer now: no manager, or it changes just then */
};

/**
 * struct cxl_kv_lookup_result - where a key is
 * @found: enum cxl_kv_found
 * @tier: enum cxl_kv_tier of its slowest part; CXL_KV_HIT only
 * @estimated_ns: mean time of the last loads of whole objects from this tier;
 *	0 while none was measured
 */
struct cxl_kv_lookup_result {
	uint32_t found;
	uint32_t tier;
	uint64_t estimated_ns;
};

/** Look keys up; no system call. 0, or -EPERM in a forked child. */
int cxl_kv_lookup(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr,
		  struct cxl_kv_lookup_result *results);
/** How many keys from the first one on are CXL_KV_HIT without a gap; no system call. */
size_t cxl_kv_lookup_prefix(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr);

/**
 * Register memory for copies without a detour: @bytes at @at must be a shared
 * mapping of @fd from @offset on, a memfd of ordinary pages. The caller may pin
 * it for a device. Errors: -EINVAL, -EPERM the manager refused the file,
 * -ENOSPC too many buffers, -ENOMEM, -ENOTCONN, -ETIMEDOUT manager lost.
 */
int cxl_kv_register_buffer(struct cxl_kv *kv, int fd, uint64_t offset, void *at, size_t bytes,
			   struct cxl_kv_buffer **out);
/** -EBUSY while a job uses it. The memory is the caller's to unmap. NULL is allowed. */
int cxl_kv_unregister_buffer(struct cxl_kv_buffer *buffer);

enum cxl_kv_class {
	CXL_KV_LOAD = 0,
	CXL_KV_STORE = 1,
};

/**
 * struct cxl_kv_transfer - one key of a job
 * @key: the object
 * @offset: first byte of the object; a job may name a key several times, to move
 *	it in parts (layer by layer). The parts of a key are adjacent in the job
 * @iov, @nr_iov: where the bytes go to or come from, in order. Inside registered
 *	buffers they are copied directly
 */
struct cxl_kv_transfer {
	struct cxl_kv_key key;
	uint32_t offset;
	const struct iovec *iov;
	size_t nr_iov;
};

/* Stores only: leave the objects open for cxl_kv_commit(). They must have been reserved. */
#define CXL_KV_JOB_NO_COMMIT 1

/**
 * struct cxl_kv_job - a load or a store
 * @size: sizeof(struct cxl_kv_job)
 * @flags: CXL_KV_JOB_NO_COMMIT
 * @deadline_ms: the job has ended by then, a key that has not with -ETIMEDOUT;
 *	0 = 30,000
 * @priority: 0-100, the highest is served first; 35 where it does not matter
 * @user_data: comes back with the completion
 * @transfers, @nr: at most CXL_KV_MAX_KEYS; copied
 * @results: nr of them, written before the completion is handed out; may be NULL.
 *	Each is 0 or -ENOENT not there, -EIO damaged and now gone: recompute it,
 *	-ETIMEDOUT, -EBUSY no room in memory, -ECANCELED, -ENOTCONN manager lost,
 *	-EINVAL beyond the object or unknown group. Stores also: -EEXIST stored or
 *	being stored by somebody, -ENODATA not all bytes of the object were given,
 *	-ENOSPC, -EDQUOT no room, and nothing that may be evicted for it
 *
 * A store reserves its keys, copies, and commits each with its last part; keys
 * that fail are aborted. Nobody finds half an object.
 */
struct cxl_kv_job {
	uint32_t size;
	uint32_t flags;
	uint32_t deadline_ms;
	uint32_t priority;
	uint64_t user_data;
	const struct cxl_kv_transfer *transfers;
	size_t nr;
	int32_t *results;
};

/**
 * Submit; never blocks. @id, where not NULL, names the job for cxl_kv_cancel().
 * Errors, and nothing was begun: -EAGAIN too much is in flight in the class,
 * poll first; -E2BIG it never fits the rings or the staging pool; -EINVAL,
 * -ENOMEM, -ENOTCONN no manager, -EPERM in a forked child.
 */
int cxl_kv_submit_store(struct cxl_kv_ns *ns, const struct cxl_kv_job *job, uint64_t *id);
int cxl_kv_submit_load(struct cxl_kv_ns *ns, const struct cxl_kv_job *job, uint64_t *id);

/**
 * struct cxl_kv_completion - a job that ended
 * @id, @user_data: which one
 * @nr_failed: transfers with an error
 * @error: the first one, 0 = all went well
 */
struct cxl_kv_completion {
	uint64_t id;
	uint64_t user_data;
	uint32_t nr_failed;
	int32_t error;
};

/**
 * An eventfd that becomes readable when jobs of the class end; the library's,
 * do not close it. Read it, then poll until nothing comes.
 */
int cxl_kv_event_fd(struct cxl_kv *kv, enum cxl_kv_class class_);
/** Take at most @nr completions; never blocks. Their number, -EPERM in a forked child. */
int cxl_kv_poll(struct cxl_kv *kv, enum cxl_kv_class class_, struct cxl_kv_completion *completions,
		size_t nr);
/**
 * Cancel what of the job has not begun. Its completion still comes by
 * cxl_kv_poll(), its buffers are the library's until then. 0, -ENOENT no such job
 * in flight, -ENOTCONN.
 */
int cxl_kv_cancel(struct cxl_kv *kv, enum cxl_kv_class class_, uint64_t id);
/** Wait until all jobs of the class have ended; cxl_kv_poll() hands them out. -ETIMEDOUT. */
int cxl_kv_drain(struct cxl_kv *kv, enum cxl_kv_class class_, uint32_t timeout_ms);

/*
 * Calls about keys. Each answers when the manager has done it: 0, and each key's
 * own outcome in @results (may be NULL), or -EINVAL, -E2BIG more than
 * CXL_KV_MAX_KEYS, -ENOTCONN, -EPERM in a forked child, and nothing is known.
 * Keys that are not there are -ENOENT in all of them.
 */

/**
 * Reserve keys for a store: others see CXL_KV_PENDING. What is not committed after
 * @time_limit_ms is aborted. -EEXIST stored, or being stored by somebody: nothing
 * to do; -ENOSPC, -EDQUOT, -ETIMEDOUT no room.
 */
int cxl_kv_reserve(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr,
		   uint32_t time_limit_ms, int32_t *results);
/** Make them found. -ENODATA not all bytes were stored, -EPERM another's, -EEXIST likewise. */
int cxl_kv_commit(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int32_t *results);
/** Give reservations up. -EPERM another's, -EEXIST committed. */
int cxl_kv_abort(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int32_t *results);

/**
 * Lock keys for @owner (a request, say): they are not evicted nor deleted for
 * @time_limit_ms, while this process is connected. Again moves the limit.
 */
int cxl_kv_lock(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, uint64_t owner,
		uint32_t time_limit_ms, int32_t *results);
/** The end of @owner's locks; 0 also where there is none. */
int cxl_kv_unlock(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, uint64_t owner,
		  int32_t *results);

/** Forget objects. -EBUSY locked, pinned, being loaded or stored. */
int cxl_kv_delete(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int32_t *results);
/** They were used: they leave later. */
int cxl_kv_touch(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int32_t *results);
/**
 * They were used, and had @scores[i] of the attention, 0 to 1 (what is beyond counts
 * as the nearer of the two): in which tier they lie follows from it. 0 is a use
 * that needs none of it. -EINVAL where a score is no number.
 */
int cxl_kv_score_keys(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, const float *scores,
		      size_t nr, int32_t *results);
/** Keep them, in memory if possible, for @lifetime_ms; UINT32_MAX = for good, 0 = no longer. */
int cxl_kv_pin_keys(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr,
		    uint32_t lifetime_ms, int32_t *results);
/** 0-100, the lowest leaves first; 35 is what an object has. */
int cxl_kv_set_priority(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr,
			uint8_t priority, int32_t *results);

/**
 * Forget all objects of the namespace that nobody locked, pinned, loads or stores.
 * Their number, or the errors of the calls above.
 */
int cxl_kv_ns_reset(struct cxl_kv_ns *ns);
/**
 * What all namespaces with this salt may hold together, 0 = no limit. A store
 * beyond it evicts the tenant's own objects. Objects that are there stay.
 */
int cxl_kv_set_quota(struct cxl_kv_ns *ns, uint64_t bytes);

/**
 * struct cxl_kv_ns_stats - figures of a namespace, and of the pool it lies in
 * @size: sizeof(struct cxl_kv_ns_stats), set by the caller
 * @nr_objects, @nr_pending: of this namespace, found and being stored
 * @tenant_bytes, @quota_bytes: of all namespaces with its salt, in whole chunks
 * @pool_bytes, @pool_free_bytes: of all tenants, hot to cold
 * @nr_stored and those that follow: since the manager started, of all tenants.
 *	Evicted for room; removed for whatever reason; failed their checksum; lost
 *	with the store or the device; keys that ran into their deadline
 */
struct cxl_kv_ns_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t nr_objects;
	uint64_t nr_pending;
	uint64_t tenant_bytes;
	uint64_t quota_bytes;
	uint64_t pool_bytes;
	uint64_t pool_free_bytes;
	uint64_t nr_stored;
	uint64_t nr_loaded;
	uint64_t nr_evicted;
	uint64_t nr_removed;
	uint64_t nr_checksum_failures;
	uint64_t nr_lost;
	uint64_t nr_timed_out;
};

/** Errors: -EINVAL, -ENOENT, -ENOTCONN, -ETIMEDOUT manager lost. */
int cxl_kv_ns_get_stats(struct cxl_kv_ns *ns, struct cxl_kv_ns_stats *stats);

enum cxl_kv_object_change {
	CXL_KV_OBJECT_STORED = 1,
	CXL_KV_OBJECT_REMOVED = 2, /* deleted, evicted, or lost */
};

struct cxl_kv_object_event {
	struct cxl_kv_key key;
	uint32_t kind; /* enum cxl_kv_object_change */
};

/**
 * Take events of the namespace since it was opened, the oldest first; no system
 * call. At most @nr; their number. @nr_lost, where not NULL, gets how many were
 * missed before them: the manager keeps the last 4,096, and a new one begins
 * anew (then look up again what matters).
 */
int cxl_kv_events(struct cxl_kv_ns *ns, struct cxl_kv_object_event *events, size_t nr,
		  uint64_t *nr_lost);

#ifdef __cplusplus
}
#endif
#endif /* CXL_KV_STORE_H */
