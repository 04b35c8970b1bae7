// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Look-ups in the index that the manager shares: no call, no lock. The slots of
 * several keys are fetched from memory at the same time.
 */
#include "client/objects.h"

#include <errno.h>
#include <string.h>

/* Keys whose slots are on their way while the first is looked at. */
#define AHEAD 16
/* A slot that changes this often while it is read: the caller may ask again. */
#define MAX_TRIES 64

struct probe {
	uint64_t key[CXL_KV_SHARED_KEY_BYTES / 8];
	uint64_t group, hash;
};

static const struct cxl_kv_index_slot *slots_of(const struct cxl_kv_index_header *header)
{
	return (const void *)((const char *)header + CXL_KV_INDEX_SLOTS_OFFSET);
}

static uint64_t load_word(const struct cxl_kv_index_slot *slot)
{
	return __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
}

static bool same_key(const struct cxl_kv_index_slot *slot, const struct probe *probe)
{
	uint64_t differs = __atomic_load_n(&slot->group, __ATOMIC_ACQUIRE) ^ probe->group;

	for (int i = 0; i < CXL_KV_SHARED_KEY_BYTES / 8; i++)
		differs |= __atomic_load_n(&slot->key[i], __ATOMIC_ACQUIRE) ^ probe->key[i];
	return !differs;
}

/* The slot's word; *match where it holds the key. False: it would not keep still. */
static bool read_slot(const struct cxl_kv_index_slot *slot, const struct probe *probe,
		      uint64_t *word, bool *match)
{
	for (int i = 0; i < MAX_TRIES; i++) {
		uint64_t before = load_word(slot), after;

		*match = (before & CXL_KV_INDEX_STATE_MASK) && same_key(slot, probe);
		after = __atomic_load_n(&slot->word, __ATOMIC_RELAXED);
		*word = after;
		if (!((before ^ after) & CXL_KV_INDEX_SEQUENCE_MASK) && !(before & 1))
			return true;
	}
	return false;
}

static uint32_t find(const struct cxl_kv_index_header *header, uint64_t mask,
		     const struct probe *probe, uint32_t *tier)
{
	uint64_t at = probe->hash & mask;

	for (int i = 0; i < CXL_KV_INDEX_MAX_PROBES; i++, at = (at + 1) & mask) {
		uint64_t word;
		bool match;

		if (!read_slot(&slots_of(header)[at], probe, &word, &match))
			return CXL_KV_RETRY;
		if (match) {
			uint64_t state =
				(word & CXL_KV_INDEX_STATE_MASK) >> CXL_KV_INDEX_STATE_SHIFT;

			*tier = (uint32_t)(word >> CXL_KV_INDEX_TIER_SHIFT);
			return state == CXL_KV_INDEX_READY     ? CXL_KV_HIT
			       : state == CXL_KV_INDEX_PENDING ? CXL_KV_PENDING
							       : CXL_KV_MISS;
		}
		if (!(word & CXL_KV_INDEX_PASSED_MASK))
			return CXL_KV_MISS;
	}
	return CXL_KV_MISS;
}

static void prepare(const struct cxl_kv_index_header *header, uint64_t mask,
		    const struct cxl_kv_key *key, struct probe *probe)
{
	memcpy(probe->key, key->bytes, sizeof(probe->key));
	probe->group = key->group;
	probe->hash = cxl_kv_index_hash(probe->key, probe->group);
	__builtin_prefetch(&slots_of(header)[probe->hash & mask]);
}

static void count(const struct cxl_kv_ns *ns, size_t nr, size_t nr_hits)
{
	struct kv_objects *objects = ns->kv->objects;

	__atomic_fetch_add(&objects->nr_lookups, nr, __ATOMIC_RELAXED);
	__atomic_fetch_add(&objects->nr_hits, nr_hits, __ATOMIC_RELAXED);
}

/* Stops after the first key that is no hit where @prefix is set; how many were hits. */
static size_t look_up(const struct cxl_kv_index_header *header, const struct cxl_kv_key *keys,
		      size_t nr, struct cxl_kv_lookup_result *results, bool prefix)
{
	struct probe probes[AHEAD];
	uint64_t mask = header->nr_slots - 1;
	size_t nr_hits = 0;

	for (size_t i = 0; i < nr && i < AHEAD; i++)
		prepare(header, mask, &keys[i], &probes[i]);
	for (size_t i = 0; i < nr; i++) {
		uint32_t tier = 0;
		uint32_t found = find(header, mask, &probes[i % AHEAD], &tier);

		if (i + AHEAD < nr)
			prepare(header, mask, &keys[i + AHEAD], &probes[i % AHEAD]);
		if (prefix && found != CXL_KV_HIT)
			return i;
		nr_hits += found == CXL_KV_HIT;
		if (!results)
			continue;
		results[i].found = found;
		results[i].tier = found == CXL_KV_HIT ? tier : 0;
		results[i].estimated_ns =
			found == CXL_KV_HIT && tier < 4
				? __atomic_load_n(&header->load_ns[tier], __ATOMIC_RELAXED)
				: 0;
	}
	return nr_hits;
}

int cxl_kv_lookup(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr,
		  struct cxl_kv_lookup_result *results)
{
	const struct kv_index *index;

	if (kv_forked(ns->kv))
		return -EPERM;
	index = __atomic_load_n(&ns->index, __ATOMIC_ACQUIRE);
	if (index) {
		count(ns, nr, look_up(index->header, keys, nr, results, false));
		return 0;
	}
	for (size_t i = 0; i < nr; i++)
		results[i] = (struct cxl_kv_lookup_result){.found = CXL_KV_RETRY};
	return 0;
}

size_t cxl_kv_lookup_prefix(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr)
{
	const struct kv_index *index;
	size_t nr_hits;

	if (kv_forked(ns->kv))
		return 0;
	index = __atomic_load_n(&ns->index, __ATOMIC_ACQUIRE);
	if (!index)
		return 0;
	nr_hits = look_up(index->header, keys, nr, NULL, true);
	count(ns, nr_hits < nr ? nr_hits + 1 : nr, nr_hits);
	return nr_hits;
}
