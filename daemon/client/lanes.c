// SPDX-License-Identifier: LGPL-2.1-or-later
/* A lane: items go to the manager, results come back to the jobs. All under the lane's lock. */
#include "client/objects.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

static void end_job(struct kv_lane *lane, struct kv_job *job)
{
	lane->nr_jobs--;
	if (job->abandoned) {
		free(job);
		return;
	}
	job->done = true;
	if (!lane->staging) /* a call: its caller waits */
		return;
	job->next = NULL;
	*lane->last = job;
	lane->last = &job->next;
}

static void scatter(const struct kv_part *part, const char *from)
{
	for (uint32_t i = 0; i < part->nr_iov; i++) {
		memcpy(part->iov[i].iov_base, from, part->iov[i].iov_len);
		from += part->iov[i].iov_len;
	}
}

void kv_lane_end_item(struct kv_lane *lane, uint32_t id, int32_t result)
{
	struct kv_job *job = lane->out[id].job;
	struct kv_part *part = &job->parts[lane->out[id].part];

	lane->out[id].job = NULL;
	lane->free_ids[lane->nr_free++] = (uint16_t)id;
	if (!part->result)
		part->result = result;
	if (part->bytes) {
		if (!result && part->nr_iov)
			scatter(part, lane->staging + part->staging);
		kv_staging_give(lane, part->staging, part->bytes);
	}
	if (!--job->nr_left)
		end_job(lane, job);
}

void kv_lane_reap(struct kv_lane *lane)
{
	uint32_t head;

	if (!lane->shared)
		return;
	head = __atomic_load_n(&lane->shared->result_head, __ATOMIC_ACQUIRE);
	while (lane->result_tail != head) {
		struct cxl_kv_item_result result =
			lane->shared->results[lane->result_tail % CXL_KV_LANE_ENTRIES];

		__atomic_store_n(&lane->shared->result_tail, ++lane->result_tail, __ATOMIC_RELEASE);
		if (result.id < CXL_KV_LANE_ENTRIES && lane->out[result.id].job)
			kv_lane_end_item(lane, result.id, result.result);
	}
}

struct cxl_kv_item *kv_lane_item(struct kv_lane *lane, struct kv_job *job, uint32_t part)
{
	uint32_t id = lane->free_ids[--lane->nr_free];
	struct cxl_kv_item *item = &lane->shared->items[lane->item_head++ % CXL_KV_LANE_ENTRIES];

	lane->out[id].job = job;
	lane->out[id].part = part;
	job->nr_left++;
	memset(item, 0, sizeof(*item));
	item->id = id;
	item->job = job->id;
	return item;
}

void kv_lane_send(struct kv_objects *objects, struct kv_lane *lane)
{
	lane->nr_jobs++;
	__atomic_store_n(&lane->shared->nr_lookups,
			 __atomic_load_n(&objects->nr_lookups, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	__atomic_store_n(&lane->shared->nr_hits,
			 __atomic_load_n(&objects->nr_hits, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	/* In this order: see manager_looks. */
	__atomic_store_n(&lane->shared->item_head, lane->item_head, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&lane->shared->manager_looks, __ATOMIC_SEQ_CST))
		eventfd_write(objects->doorbell, 1);
}
