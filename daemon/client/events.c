// SPDX-License-Identifier: LGPL-2.1-or-later
/* What was stored and removed, from the ring beside the index; and figures. */
#include "client/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct cxl_kv_index_event *event_at(const struct cxl_kv_index_header *header,
						 uint64_t number)
{
	const char *slots = (const char *)header + CXL_KV_INDEX_SLOTS_OFFSET;
	const struct cxl_kv_index_event *events =
		(const void *)(slots + header->nr_slots * sizeof(struct cxl_kv_index_slot));

	return &events[number & (CXL_KV_INDEX_NR_EVENTS - 1)];
}

/* False: it was written over meanwhile. */
static bool read_event(const struct cxl_kv_index_event *from, uint64_t number,
		       struct cxl_kv_object_event *to)
{
	uint64_t key[CXL_KV_SHARED_KEY_BYTES / 8];

	if (__atomic_load_n(&from->sequence, __ATOMIC_ACQUIRE) != number + 1)
		return false;
	for (int i = 0; i < CXL_KV_SHARED_KEY_BYTES / 8; i++)
		key[i] = __atomic_load_n(&from->key[i], __ATOMIC_ACQUIRE);
	memcpy(to->key.bytes, key, sizeof(key));
	to->key.group = __atomic_load_n(&from->group, __ATOMIC_ACQUIRE);
	to->kind = __atomic_load_n(&from->kind, __ATOMIC_ACQUIRE);
	return __atomic_load_n(&from->sequence, __ATOMIC_RELAXED) == number + 1;
}

int cxl_kv_events(struct cxl_kv_ns *ns, struct cxl_kv_object_event *events, size_t nr,
		  uint64_t *nr_lost)
{
	const struct kv_index *index;
	uint64_t lost = 0;
	int taken = 0;

	if (kv_forked(ns->kv))
		return -EPERM;
	pthread_mutex_lock(&ns->event_lock);
	index = __atomic_load_n(&ns->index, __ATOMIC_ACQUIRE);
	while (index && (size_t)taken < nr && taken < INT32_MAX) {
		uint64_t head = __atomic_load_n(&index->header->nr_events, __ATOMIC_ACQUIRE);

		if (ns->next_event == head)
			break;
		if (head - ns->next_event > CXL_KV_INDEX_NR_EVENTS) {
			lost += head - CXL_KV_INDEX_NR_EVENTS - ns->next_event;
			ns->next_event = head - CXL_KV_INDEX_NR_EVENTS;
		}
		if (read_event(event_at(index->header, ns->next_event), ns->next_event,
			       &events[taken]))
			taken++;
		else
			lost++;
		ns->next_event++;
	}
	pthread_mutex_unlock(&ns->event_lock);
	if (nr_lost)
		*nr_lost = lost;
	return taken;
}

int cxl_kv_ns_get_stats(struct cxl_kv_ns *ns, struct cxl_kv_ns_stats *stats)
{
	struct kv_call call = {};
	struct json_object *answer, *field;
	const struct {
		const char *name;
		uint64_t *value;
	} fields[] = {
		{"objects", &stats->nr_objects},
		{"pending", &stats->nr_pending},
		{"tenant_bytes", &stats->tenant_bytes},
		{"quota_bytes", &stats->quota_bytes},
		{"pool_bytes", &stats->pool_bytes},
		{"pool_free_bytes", &stats->pool_free_bytes},
		{"stored", &stats->nr_stored},
		{"loaded", &stats->nr_loaded},
		{"evicted", &stats->nr_evicted},
		{"removed", &stats->nr_removed},
		{"checksum_failures", &stats->nr_checksum_failures},
		{"lost", &stats->nr_lost},
		{"timed_out", &stats->nr_timed_out},
	};
	int rc;

	if (kv_forked(ns->kv))
		return -EPERM;
	if (stats->size != sizeof(*stats) || stats->reserved)
		return -EINVAL;
	call.request = kv_space_request(ns, "namespace_stats");
	rc = kv_call(ns->kv, &call, &answer);
	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (!json_object_object_get_ex(answer, fields[i].name, &field))
			rc = -EPROTO;
		else
			*fields[i].value = strtoull(json_object_get_string(field), NULL, 10);
	}
	json_object_put(answer);
	return rc;
}
