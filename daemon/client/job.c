// SPDX-License-Identifier: LGPL-2.1-or-later
/* Loads and stores: from a caller's transfers to items, and back to completions. */
#include "client/objects.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define DEFAULT_DEADLINE_MS 30000
/* Of drain: another thread may have read the event that this one waits for. */
#define DRAIN_LOOK_MS 10

struct kv_job *kv_job_new(size_t nr, size_t nr_iov)
{
	struct kv_job *job =
		malloc(sizeof(*job) + nr * sizeof(job->parts[0]) + nr_iov * sizeof(struct iovec));

	if (!job)
		return NULL;
	memset(job, 0, sizeof(*job) + nr * sizeof(job->parts[0]));
	job->nr = (uint32_t)nr;
	return job;
}

/* What a job comes to, before anything is taken for it. */
struct plan {
	size_t nr_iov, nr_items;
	bool direct[CXL_KV_MAX_KEYS];
};

static bool all_registered(const struct kv_objects *objects, const struct cxl_kv_transfer *transfer)
{
	for (size_t i = 0; i < transfer->nr_iov; i++) {
		if (!kv_buffer_find(objects, transfer->iov[i].iov_base, transfer->iov[i].iov_len))
			return false;
	}
	return true;
}

/* Under arenas_lock. */
static int plan_job(const struct kv_objects *objects, const struct cxl_kv_job *from,
		    struct plan *plan)
{
	plan->nr_iov = plan->nr_items = 0;
	for (size_t i = 0; i < from->nr; i++) {
		const struct cxl_kv_transfer *transfer = &from->transfers[i];
		uint64_t bytes = 0;

		if (!transfer->nr_iov || !transfer->iov || transfer->nr_iov > CXL_KV_LANE_ENTRIES)
			return -EINVAL;
		for (size_t j = 0; j < transfer->nr_iov; j++) {
			if (!transfer->iov[j].iov_base || !transfer->iov[j].iov_len ||
			    transfer->iov[j].iov_len > CXL_KV_MAX_OBJECT_BYTES)
				return -EINVAL;
			bytes += transfer->iov[j].iov_len;
		}
		if (bytes > CXL_KV_MAX_OBJECT_BYTES)
			return -EINVAL;
		plan->direct[i] = all_registered(objects, transfer);
		if (!plan->direct[i] && bytes > KV_STAGING_BYTES)
			return -E2BIG;
		plan->nr_iov += plan->direct[i] ? 0 : transfer->nr_iov;
		plan->nr_items += plan->direct[i] ? transfer->nr_iov : 1;
	}
	return plan->nr_items > CXL_KV_LANE_ENTRIES ? -E2BIG : 0;
}

static uint32_t bytes_of(const struct cxl_kv_transfer *transfer)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < transfer->nr_iov; i++)
		bytes += transfer->iov[i].iov_len;
	return (uint32_t)bytes;
}

/* Under the lane's lock: pool space for each transfer that needs it, all or nothing. */
static int take_staging(struct kv_lane *lane, const struct cxl_kv_job *from,
			const struct plan *plan, struct kv_job *job)
{
	struct iovec *iov = (struct iovec *)&job->parts[job->nr];
	uint64_t all = 0;

	for (size_t i = 0; i < from->nr; i++) {
		const struct cxl_kv_transfer *transfer = &from->transfers[i];
		struct kv_part *part = &job->parts[i];
		uint32_t bytes = bytes_of(transfer);
		int rc;

		if (plan->direct[i])
			continue;
		all += bytes;
		rc = kv_staging_take(lane, bytes, &part->staging);
		if (rc) {
			while (i--) {
				if (job->parts[i].bytes)
					kv_staging_give(lane, job->parts[i].staging,
							job->parts[i].bytes);
			}
			/* Alone it would not fit either. */
			return all > KV_STAGING_BYTES ? -E2BIG : rc;
		}
		part->bytes = bytes;
		part->iov = iov;
		part->nr_iov = (uint32_t)transfer->nr_iov;
		memcpy(iov, transfer->iov, transfer->nr_iov * sizeof(*iov));
		iov += transfer->nr_iov;
	}
	return 0;
}

static void gather(const struct kv_part *part, char *to)
{
	for (uint32_t i = 0; i < part->nr_iov; i++) {
		memcpy(to, part->iov[i].iov_base, part->iov[i].iov_len);
		to += part->iov[i].iov_len;
	}
}

static bool same_key(const struct cxl_kv_transfer *a, const struct cxl_kv_transfer *b)
{
	return !memcmp(&a->key, &b->key, sizeof(a->key));
}

struct submission {
	struct kv_objects *objects;
	struct kv_lane *lane;
	struct kv_job *job;
	const struct cxl_kv_job *from;
	struct cxl_kv_item like; /* what all items have in common */
	uint32_t class;
};

static void add_item(const struct submission *s, size_t i, uint32_t offset, uint32_t bytes,
		     uint32_t buffer, uint64_t buffer_offset, bool first, bool last)
{
	const struct cxl_kv_transfer *transfer = &s->from->transfers[i];
	struct cxl_kv_item *item = kv_lane_item(s->lane, s->job, (uint32_t)i);
	bool commits = s->class == CXL_KV_STORE && !(s->from->flags & CXL_KV_JOB_NO_COMMIT);

	item->op = s->like.op;
	item->ns = s->like.ns;
	item->priority = s->like.priority;
	item->deadline_ns = s->like.deadline_ns;
	item->offset = offset;
	item->bytes = bytes;
	item->buffer = buffer;
	item->buffer_offset = buffer_offset;
	item->group = transfer->key.group;
	memcpy(item->key, transfer->key.bytes, sizeof(item->key));
	first = first && (!i || !same_key(transfer, transfer - 1));
	last = last && (i + 1 == s->from->nr || !same_key(transfer, transfer + 1));
	if (commits)
		item->flags = (first ? CXL_KV_ITEM_FIRST : 0) | (last ? CXL_KV_ITEM_LAST : 0);
}

static void add_direct(const struct submission *s, size_t i)
{
	const struct cxl_kv_transfer *transfer = &s->from->transfers[i];
	uint32_t offset = transfer->offset;

	for (size_t j = 0; j < transfer->nr_iov; j++) {
		const struct iovec *iov = &transfer->iov[j];
		const struct cxl_kv_buffer *buffer =
			kv_buffer_find(s->objects, iov->iov_base, iov->iov_len);

		add_item(s, i, offset, (uint32_t)iov->iov_len, buffer->number,
			 buffer->offset + (uint64_t)((char *)iov->iov_base - buffer->at), !j,
			 j + 1 == transfer->nr_iov);
		offset += (uint32_t)iov->iov_len;
	}
}

static void add_staged(const struct submission *s, size_t i)
{
	struct kv_part *part = &s->job->parts[i];

	if (s->class == CXL_KV_STORE) {
		gather(part, s->lane->staging + part->staging);
		part->nr_iov = 0; /* nothing comes back */
	}
	add_item(s, i, s->from->transfers[i].offset, part->bytes, KV_STAGING_BUFFER,
		 (uint64_t)s->class * KV_STAGING_BYTES + part->staging, true, true);
}

/* Under the lane's lock. */
static int start_job(const struct submission *s, const struct plan *plan)
{
	int rc;

	if (!__atomic_load_n(&s->objects->attached, __ATOMIC_RELAXED))
		return -ENOTCONN;
	if (s->lane->nr_free < plan->nr_items)
		kv_lane_reap(s->lane);
	if (s->lane->nr_free < plan->nr_items)
		return -EAGAIN;
	rc = take_staging(s->lane, s->from, plan, s->job);
	if (rc == -EAGAIN) {
		kv_lane_reap(s->lane);
		rc = take_staging(s->lane, s->from, plan, s->job);
	}
	if (rc)
		return rc;
	for (size_t i = 0; i < s->from->nr; i++) {
		if (plan->direct[i])
			add_direct(s, i);
		else
			add_staged(s, i);
	}
	kv_lane_send(s->objects, s->lane);
	return 0;
}

static int check_job(const struct cxl_kv_job *from, uint32_t class)
{
	uint32_t flags = class == CXL_KV_STORE ? CXL_KV_JOB_NO_COMMIT : 0;

	if (!from || from->size != sizeof(*from) || (from->flags & ~flags) || !from->nr ||
	    !from->transfers || from->priority > CXL_KV_MAX_PRIORITY)
		return -EINVAL;
	return from->nr > CXL_KV_MAX_KEYS ? -E2BIG : 0;
}

/* Takes arenas_lock, but not from the helper, which has it while it waits for a manager. */
static int keep_lists(const struct kv_objects *objects, struct cxl_kv *kv)
{
	while (pthread_mutex_trylock(&kv->arenas_lock)) {
		if (!__atomic_load_n(&objects->attached, __ATOMIC_RELAXED))
			return -ENOTCONN;
		sched_yield();
	}
	return 0;
}

static int submit(struct cxl_kv_ns *ns, const struct cxl_kv_job *from, uint32_t class, uint64_t *id)
{
	struct submission s = {.from = from, .class = class};
	struct plan plan;
	int rc;

	if (kv_forked(ns->kv))
		return -EPERM;
	rc = check_job(from, class);
	if (rc)
		return rc;
	s.objects = ns->kv->objects;
	s.lane = &s.objects->lanes[class];
	rc = keep_lists(s.objects, ns->kv);
	if (rc)
		return rc;
	rc = ns->error ?: plan_job(s.objects, from, &plan);
	s.job = rc ? NULL : kv_job_new(from->nr, plan.nr_iov);
	if (!rc && !s.job)
		rc = -ENOMEM;
	if (!rc) {
		s.job->id = __atomic_fetch_add(&s.objects->next_job, 1, __ATOMIC_RELAXED);
		s.job->user_data = from->user_data;
		s.job->results = from->results;
		s.like.op = class == CXL_KV_LOAD ? CXL_KV_ITEM_LOAD : CXL_KV_ITEM_STORE;
		s.like.ns = ns->number;
		s.like.priority = (uint8_t)from->priority;
		s.like.deadline_ns =
			kv_now_ns() + (from->deadline_ms ?: DEFAULT_DEADLINE_MS) * KV_NS_PER_MS;
		if (id)
			*id = s.job->id;
		pthread_mutex_lock(&s.lane->lock);
		rc = start_job(&s, &plan);
		pthread_mutex_unlock(&s.lane->lock);
	}
	pthread_mutex_unlock(&ns->kv->arenas_lock);
	if (rc)
		free(s.job);
	return rc;
}

int cxl_kv_submit_load(struct cxl_kv_ns *ns, const struct cxl_kv_job *job, uint64_t *id)
{
	return submit(ns, job, CXL_KV_LOAD, id);
}

int cxl_kv_submit_store(struct cxl_kv_ns *ns, const struct cxl_kv_job *job, uint64_t *id)
{
	return submit(ns, job, CXL_KV_STORE, id);
}

/* ---- completions ---- */

/* The class's lane, or NULL with an errno. */
static struct kv_lane *lane_of(struct cxl_kv *kv, enum cxl_kv_class class, int *rc)
{
	struct kv_objects *objects;

	*rc = class == CXL_KV_LOAD || class == CXL_KV_STORE ? 0 : -EINVAL;
	if (!*rc)
		*rc = kv_objects_get(kv, &objects);
	return *rc ? NULL : &objects->lanes[class];
}

int cxl_kv_event_fd(struct cxl_kv *kv, enum cxl_kv_class class)
{
	int rc;
	struct kv_lane *lane = lane_of(kv, class, &rc);

	return lane ? lane->event_fd : rc;
}

static void hand_out(struct kv_job *job, struct cxl_kv_completion *completion)
{
	*completion = (struct cxl_kv_completion){.id = job->id, .user_data = job->user_data};
	for (uint32_t i = 0; i < job->nr; i++) {
		int32_t result = job->parts[i].result;

		if (job->results)
			job->results[i] = result;
		if (!result)
			continue;
		completion->nr_failed++;
		if (!completion->error)
			completion->error = result;
	}
	free(job);
}

int cxl_kv_poll(struct cxl_kv *kv, enum cxl_kv_class class, struct cxl_kv_completion *completions,
		size_t nr)
{
	int rc, taken = 0;
	struct kv_lane *lane = lane_of(kv, class, &rc);

	if (!lane)
		return rc;
	pthread_mutex_lock(&lane->lock);
	kv_lane_reap(lane);
	while (lane->first && (size_t)taken < nr && taken < INT32_MAX) {
		struct kv_job *job = lane->first;

		lane->first = job->next;
		if (!lane->first)
			lane->last = &lane->first;
		hand_out(job, &completions[taken++]);
	}
	if (!taken && lane->nr_jobs)
		__atomic_store_n(&lane->shared->nr_polls, ++lane->nr_polls, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lane->lock);
	return taken;
}

int cxl_kv_cancel(struct cxl_kv *kv, enum cxl_kv_class class, uint64_t id)
{
	const struct cxl_kv_item item = {
		.op = CXL_KV_ITEM_CANCEL, .value = id, .group = (uint32_t) class};
	int rc;

	if (!lane_of(kv, class, &rc))
		return rc;
	if (!id)
		return -EINVAL;
	rc = kv_item_call(kv, &item, NULL, NULL, 1, 0, NULL);
	return rc ? (rc > 0 ? 0 : rc) : -ENOENT;
}

int cxl_kv_drain(struct cxl_kv *kv, enum cxl_kv_class class, uint32_t timeout_ms)
{
	uint64_t deadline_ns = kv_now_ns() + timeout_ms * KV_NS_PER_MS;
	bool any;
	int rc;
	struct kv_lane *lane = lane_of(kv, class, &rc);

	if (!lane)
		return rc;
	for (;;) {
		struct pollfd event = {.fd = lane->event_fd, .events = POLLIN};
		uint32_t nr_jobs;
		eventfd_t count;

		pthread_mutex_lock(&lane->lock);
		kv_lane_reap(lane);
		nr_jobs = lane->nr_jobs;
		any = lane->first;
		pthread_mutex_unlock(&lane->lock);
		rc = nr_jobs && kv_now_ns() >= deadline_ns ? -ETIMEDOUT : 0;
		if (!nr_jobs || rc)
			break;
		if (poll(&event, 1, DRAIN_LOOK_MS) > 0)
			eventfd_read(lane->event_fd, &count);
	}
	/* Who waits for the event is to find what there is. */
	if (any)
		eventfd_write(lane->event_fd, 1);
	return rc;
}
