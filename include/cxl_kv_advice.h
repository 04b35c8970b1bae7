/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libcxl_kv: advice about a tier that only the engine can touch, such as the
 * memory of a discrete GPU.
 *
 * The engine says how large the tier is and which objects of a namespace it holds
 * there. The manager hears of their uses (cxl_kv_touch(), cxl_kv_score_keys()) and
 * advises which should leave it, and which of those that the manager has should
 * come. It is the engine that moves them, by stores and loads or in its own way,
 * or does not; it acknowledges both. Demotions come before promotions, which are
 * advised where there is room.
 *
 * Advice is about one connection's own tier. After the manager was lost calls
 * answer -ENOENT: open the tier again and report what is in it.
 *
 * Included by cxl_kv.h.
 */
#ifndef CXL_KV_ADVICE_H
#define CXL_KV_ADVICE_H

#include <cxl_kv_store.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct cxl_kv_tier_options - the engine's own tier
 * @size: sizeof(struct cxl_kv_tier_options)
 * @ack_ms: how long advice may stay without an answer; 0 = 1,000
 * @bytes: what the tier holds, above 0
 * @high_permil, @low_permil: of @bytes. With more than high in the tier, demotions
 *	are advised until it is low; 0 = 950 and 900
 */
struct cxl_kv_tier_options {
	uint32_t size;
	uint32_t ack_ms;
	uint64_t bytes;
	uint32_t high_permil;
	uint32_t low_permil;
};

/**
 * Begin to be advised about objects of the namespace.
 * Errors: -EBUSY it has a tier on this connection already, -EINVAL, -ENOMEM, -ENOTCONN,
 * -ETIMEDOUT manager lost, -EPERM in a forked child, -EOPNOTSUPP an older manager.
 */
int cxl_kv_tier_open(struct cxl_kv_ns *ns, const struct cxl_kv_tier_options *options);
/** End it; a call of cxl_kv_advice_wait() ends with -ENOENT. -ENOENT there is none. */
int cxl_kv_tier_close(struct cxl_kv_ns *ns);

/**
 * Say which objects are in the tier (@held 1) or are not any more (0). What was
 * acknowledged need not be reported. Like the calls about keys of cxl_kv_store.h; of
 * each key -ENOENT no tier is open, -EINVAL unknown group, -ENOSPC more than a million.
 */
int cxl_kv_tier_report(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int held,
		       int32_t *results);

enum cxl_kv_advice_kind {
	CXL_KV_ADVICE_DEMOTE = 1,  /* take it out of the tier */
	CXL_KV_ADVICE_PROMOTE = 2, /* bring it there; it can be loaded */
};

/**
 * struct cxl_kv_advice - what to do with one object
 * @id: for cxl_kv_advice_end()
 * @key: the object
 * @kind: enum cxl_kv_advice_kind
 */
struct cxl_kv_advice {
	uint64_t id;
	struct cxl_kv_key key;
	uint32_t kind;
};

/**
 * Wait for advice, at most @timeout_ms (0: take what there is). The number, at most
 * @nr and at most 256; 0 where none came. One thread at a time waits in a namespace.
 * Errors: -ENOENT no tier is open, -EBUSY another thread waits, and as above.
 */
int cxl_kv_advice_wait(struct cxl_kv_ns *ns, struct cxl_kv_advice *advice, size_t nr,
		       uint32_t timeout_ms);
/**
 * Acknowledge advice: it was done (@done 1), or is refused (0). The same object is not
 * advised again within the tier's ack_ms after a refusal, or when no answer came in
 * time. -ENOENT no such advice is open: it expired, or was acknowledged.
 */
int cxl_kv_advice_end(struct cxl_kv_ns *ns, uint64_t id, int done);

/**
 * struct cxl_kv_tier_stats - figures of the tier, as the manager sees it
 * @size: sizeof(struct cxl_kv_tier_stats), set by the caller
 * @bytes, @nr_blocks: held now
 * @nr_promotes, @nr_demotes: advised since it was opened: as many as were done,
 *	refused, expired, and are open
 */
struct cxl_kv_tier_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t bytes;
	uint64_t nr_blocks;
	uint64_t nr_promotes;
	uint64_t nr_demotes;
	uint64_t nr_done;
	uint64_t nr_refused;
	uint64_t nr_expired;
};

/** Errors: -EINVAL, -ENOENT no tier is open, and as above. */
int cxl_kv_tier_get_stats(struct cxl_kv_ns *ns, struct cxl_kv_tier_stats *stats);

#ifdef __cplusplus
}
#endif
#endif /* CXL_KV_ADVICE_H */
