// SPDX-License-Identifier: LGPL-2.1-or-later
/* Calls about keys: one item each in the lane of calls, and the wait for all of them. */
#include "client/objects.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

static int start_call(struct kv_objects *objects, struct kv_lane *lane, struct kv_job *job,
		      const struct cxl_kv_item *like, const struct cxl_kv_key *keys,
		      const uint64_t *values)
{
	int rc = 0;

	pthread_mutex_lock(&lane->lock);
	kv_lane_reap(lane);
	if (!__atomic_load_n(&objects->attached, __ATOMIC_RELAXED))
		rc = -ENOTCONN;
	else if (lane->nr_free < job->nr)
		rc = -EAGAIN; /* the manager did not answer earlier calls */
	for (uint32_t i = 0; i < job->nr && !rc; i++) {
		struct cxl_kv_item *item = kv_lane_item(lane, job, i);
		uint32_t id = item->id;

		*item = *like;
		item->id = id;
		if (!keys)
			continue;
		item->group = keys[i].group;
		memcpy(item->key, keys[i].bytes, sizeof(item->key));
		if (values)
			item->value = values[i];
	}
	if (!rc)
		kv_lane_send(objects, lane);
	pthread_mutex_unlock(&lane->lock);
	return rc;
}

/* Under call_lock, so that nobody else reads the event. */
static int wait_for_call(struct kv_lane *lane, struct kv_job *job, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd event = {.fd = lane->event_fd, .events = POLLIN};
		uint64_t now = kv_now_ns();
		eventfd_t count;
		bool done;

		pthread_mutex_lock(&lane->lock);
		kv_lane_reap(lane);
		done = job->done;
		/* Its results may still come: whoever takes the last one frees it. */
		job->abandoned = !done && now >= deadline_ns;
		pthread_mutex_unlock(&lane->lock);
		if (done)
			return 0;
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (poll(&event, 1, (int)((deadline_ns - now) / KV_NS_PER_MS) + 1) > 0)
			eventfd_read(lane->event_fd, &count);
	}
}

int kv_item_call(struct cxl_kv *kv, const struct cxl_kv_item *like, const struct cxl_kv_key *keys,
		 const uint64_t *values, size_t nr, uint32_t timeout_ms, int32_t *results)
{
	uint64_t patience_ms = (uint64_t)timeout_ms + kv->loss_deadline_ms;
	struct kv_objects *objects = kv->objects;
	struct kv_lane *lane = &objects->lanes[CXL_KV_LANE_CALL];
	struct kv_job *job = kv_job_new(nr, 0);
	int rc;

	if (!job)
		return -ENOMEM;
	pthread_mutex_lock(&objects->call_lock);
	rc = start_call(objects, lane, job, like, keys, values);
	if (rc) {
		free(job);
	} else {
		rc = wait_for_call(lane, job, kv_now_ns() + patience_ms * KV_NS_PER_MS);
		if (!rc) {
			for (size_t i = 0; i < nr && results; i++)
				results[i] = job->parts[i].result;
			/* Lost before any was done: nothing is known of them. */
			rc = !keys || job->parts[0].result == -ENOTCONN ? job->parts[0].result : 0;
			free(job);
		}
	}
	pthread_mutex_unlock(&objects->call_lock);
	return rc;
}

static int check_keys(const struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr)
{
	if (kv_forked(ns->kv))
		return -EPERM;
	if (!keys || !nr)
		return -EINVAL;
	return nr > CXL_KV_MAX_KEYS ? -E2BIG : ns->error;
}

static int key_call(struct cxl_kv_ns *ns, struct cxl_kv_item like, const struct cxl_kv_key *keys,
		    size_t nr, uint32_t timeout_ms, int32_t *results)
{
	int rc = check_keys(ns, keys, nr);

	if (rc)
		return rc;
	like.ns = ns->number;
	return kv_item_call(ns->kv, &like, keys, NULL, nr, timeout_ms, results);
}

/* One that says no more than which. */
static int plain_call(struct cxl_kv_ns *ns, enum cxl_kv_item_op op, uint64_t value,
		      const struct cxl_kv_key *keys, size_t nr, int32_t *results)
{
	const struct cxl_kv_item item = {.op = (uint8_t)op, .value = value};

	return key_call(ns, item, keys, nr, 0, results);
}

static uint64_t in_ms(uint32_t ms)
{
	return kv_now_ns() + ms * KV_NS_PER_MS;
}

int cxl_kv_reserve(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr,
		   uint32_t time_limit_ms, int32_t *results)
{
	const struct cxl_kv_item item = {.op = CXL_KV_ITEM_RESERVE,
					 .deadline_ns = in_ms(time_limit_ms)};

	if (!time_limit_ms)
		return -EINVAL;
	return key_call(ns, item, keys, nr, time_limit_ms, results);
}

int cxl_kv_commit(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int32_t *results)
{
	return plain_call(ns, CXL_KV_ITEM_COMMIT, 0, keys, nr, results);
}

int cxl_kv_abort(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int32_t *results)
{
	return plain_call(ns, CXL_KV_ITEM_ABORT, 0, keys, nr, results);
}

int cxl_kv_lock(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, uint64_t owner,
		uint32_t time_limit_ms, int32_t *results)
{
	const struct cxl_kv_item item = {
		.op = CXL_KV_ITEM_LOCK, .value = owner, .deadline_ns = in_ms(time_limit_ms)};

	if (!time_limit_ms)
		return -EINVAL;
	return key_call(ns, item, keys, nr, 0, results);
}

int cxl_kv_unlock(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, uint64_t owner,
		  int32_t *results)
{
	return plain_call(ns, CXL_KV_ITEM_UNLOCK, owner, keys, nr, results);
}

int cxl_kv_delete(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int32_t *results)
{
	return plain_call(ns, CXL_KV_ITEM_DELETE, 0, keys, nr, results);
}

int cxl_kv_touch(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int32_t *results)
{
	return plain_call(ns, CXL_KV_ITEM_TOUCH, 0, keys, nr, results);
}

int cxl_kv_score_keys(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, const float *scores,
		      size_t nr, int32_t *results)
{
	const struct cxl_kv_item item = {.op = CXL_KV_ITEM_SCORE, .ns = ns->number};
	uint64_t values[CXL_KV_MAX_KEYS];
	int rc = check_keys(ns, keys, nr);

	if (rc)
		return rc;
	if (!scores)
		return -EINVAL;
	for (size_t i = 0; i < nr; i++) {
		float score = scores[i] > 1 ? 1 : scores[i] > 0 ? scores[i] : 0;

		if (isnan(scores[i]))
			return -EINVAL;
		values[i] = (uint64_t)(score * CXL_KV_SCORE_ONE + 0.5f);
	}
	return kv_item_call(ns->kv, &item, keys, values, nr, 0, results);
}

int cxl_kv_tier_report(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr, int held,
		       int32_t *results)
{
	return plain_call(ns, CXL_KV_ITEM_HELD, held != 0, keys, nr, results);
}

int cxl_kv_pin_keys(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr,
		    uint32_t lifetime_ms, int32_t *results)
{
	const struct cxl_kv_item item = {.op = CXL_KV_ITEM_PIN,
					 .deadline_ns = lifetime_ms == UINT32_MAX ? UINT64_MAX
							: lifetime_ms ? in_ms(lifetime_ms)
								      : 0};

	return key_call(ns, item, keys, nr, 0, results);
}

int cxl_kv_set_priority(struct cxl_kv_ns *ns, const struct cxl_kv_key *keys, size_t nr,
			uint8_t priority, int32_t *results)
{
	const struct cxl_kv_item item = {.op = CXL_KV_ITEM_PRIORITY, .priority = priority};

	if (priority > CXL_KV_MAX_PRIORITY)
		return -EINVAL;
	return key_call(ns, item, keys, nr, 0, results);
}

/* About no key; the item's result. */
static int space_call(struct cxl_kv_ns *ns, struct cxl_kv_item like)
{
	if (kv_forked(ns->kv))
		return -EPERM;
	if (ns->error)
		return ns->error;
	like.ns = ns->number;
	return kv_item_call(ns->kv, &like, NULL, NULL, 1, 0, NULL);
}

int cxl_kv_ns_reset(struct cxl_kv_ns *ns)
{
	const struct cxl_kv_item item = {.op = CXL_KV_ITEM_RESET};

	return space_call(ns, item);
}

int cxl_kv_set_quota(struct cxl_kv_ns *ns, uint64_t bytes)
{
	const struct cxl_kv_item item = {.op = CXL_KV_ITEM_QUOTA, .value = bytes};

	return space_call(ns, item);
}

int cxl_kv_advice_end(struct cxl_kv_ns *ns, uint64_t id, int done)
{
	const struct cxl_kv_item item = {
		.op = CXL_KV_ITEM_ADVICE_END, .value = id, .flags = done ? CXL_KV_ITEM_DONE : 0};

	return space_call(ns, item);
}
