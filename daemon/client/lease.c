// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Leases: compare-and-swap on the words that the manager reads before it lets a
 * block go. No system call where all blocks are in memory. For the others the
 * lease is taken first and the block fetched then, so that it cannot leave
 * again between the two.
 */
#include "client/internal.h"

#include <errno.h>

static unsigned int state_of(uint64_t word)
{
	return (unsigned int)(word & CXL_KV_WORD_STATE_MASK);
}

/* 1: leased and in memory; 0: leased, to be fetched; else an errno, and no lease. */
static int lease_block(uint64_t *word)
{
	uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);

	do {
		if (state_of(seen) == CXL_KV_EMPTY)
			return -ENODATA;
		if (state_of(seen) == CXL_KV_LOST)
			return -EIO;
		if ((seen & CXL_KV_WORD_LEASES_MASK) == CXL_KV_WORD_LEASES_MASK)
			return -EOVERFLOW;
	} while (!__atomic_compare_exchange_n(
		word, &seen, (seen & ~CXL_KV_WORD_AGE_MASK) + CXL_KV_WORD_LEASES_ONE, true,
		__ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	/* A spill that has not punched yet sees the lease and gives up. */
	return !!(KV_STATES(state_of(seen)) & KV_STATES_HERE);
}

/*
 * Where leases have expired, this may be one of those: it is taken for one, so that
 * a lease that was made since is kept; at worst that expires in its turn. Never below
 * zero: the bits above are the manager's.
 */
static int unlease_block(uint64_t *word)
{
	uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED), one;

	do {
		if (seen & CXL_KV_WORD_EXPIRED_MASK)
			one = CXL_KV_WORD_EXPIRED_ONE;
		else if (seen & CXL_KV_WORD_LEASES_MASK)
			one = CXL_KV_WORD_LEASES_ONE;
		else
			return -EINVAL;
	} while (!__atomic_compare_exchange_n(word, &seen, seen - one, true, __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
	return 0;
}

static uint64_t *first_word(const struct cxl_kv_arena *arena, const struct cxl_kv_range *range)
{
	return &arena->words[kv_block_index(arena, range->slot, range->head, range->block)];
}

/* Leases in order until one fails; @nr_leased says how many there are now. */
static int lease_all(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr,
		     uint64_t *nr_leased, uint64_t *nr_hits)
{
	for (size_t i = 0; i < nr; i++) {
		uint64_t *words = first_word(arena, &ranges[i]);

		for (uint32_t b = 0; b < ranges[i].nr_blocks; b++) {
			int rc = lease_block(&words[b]);

			if (rc < 0)
				return rc;
			*nr_leased += 1;
			*nr_hits += (unsigned int)rc;
		}
	}
	return 0;
}

/* Gives the first nr_leased leases of lease_all() back. */
static void roll_back(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges,
		      uint64_t nr_leased)
{
	for (size_t i = 0; nr_leased; i++) {
		uint64_t *words = first_word(arena, &ranges[i]);

		for (uint32_t b = 0; b < ranges[i].nr_blocks && nr_leased; b++, nr_leased--)
			unlease_block(&words[b]);
	}
}

/* The manager says that all are there; what it wrote into the table has the last word. */
static int check_fetched(const struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges,
			 size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		uint64_t *words = first_word(arena, &ranges[i]);

		for (uint32_t b = 0; b < ranges[i].nr_blocks; b++) {
			unsigned int state = state_of(__atomic_load_n(&words[b], __ATOMIC_ACQUIRE));

			if (state == CXL_KV_LOST)
				return -EIO;
			if (state == CXL_KV_EMPTY)
				return -ENODATA;
		}
	}
	return 0;
}

int cxl_kv_lease(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr,
		 uint32_t timeout_ms, uint64_t *nr_hits)
{
	uint64_t nr_leased = 0, hits = 0;
	int rc = kv_check_ranges(arena, ranges, nr);

	if (rc)
		return rc;
	rc = lease_all(arena, ranges, nr, &nr_leased, &hits);
	if (!rc && hits < nr_leased)
		rc = kv_call_states(arena, "fetch", ranges, nr, KV_STATES_ABSENT, timeout_ms)
			     ?: check_fetched(arena, ranges, nr);
	if (rc) {
		roll_back(arena, ranges, nr_leased);
		return rc;
	}
	if (nr_hits)
		*nr_hits = hits;
	return 0;
}

int cxl_kv_unlease(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr)
{
	int rc = kv_check_ranges(arena, ranges, nr);

	if (rc)
		return rc;
	for (size_t i = 0; i < nr; i++) {
		uint64_t *words = first_word(arena, &ranges[i]);

		/* A block without a lease does not keep the others leased. */
		for (uint32_t b = 0; b < ranges[i].nr_blocks; b++)
			rc = unlease_block(&words[b]) ?: rc;
	}
	return rc;
}
