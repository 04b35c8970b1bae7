// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The callers' side of the connection: one request from being built to its
 * answer, over as many managers as that takes. All requests may be repeated:
 * their second run finds the work done.
 */
#include "client/internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MAX_ERRNO 4095

struct json_object *kv_request(const char *op)
{
	struct json_object *request = json_object_new_object();

	if (!kv_json_add(request, "op", json_object_new_string(op)))
		return request;
	json_object_put(request);
	return NULL;
}

/* By value, -EPROTO for a name that errno does not know. */
static int errno_by_name(const char *name)
{
	for (int value = 1; value <= MAX_ERRNO; value++) {
		const char *known = strerrorname_np(value);

		if (known && !strcmp(known, name))
			return -value;
	}
	return -EPROTO;
}

int kv_answer_error(struct json_object *answer)
{
	struct json_object *field;

	if (json_object_object_get_ex(answer, "error", &field))
		return json_object_is_type(field, json_type_string)
			       ? errno_by_name(json_object_get_string(field))
			       : -EPROTO;
	if (json_object_object_get_ex(answer, "ok", &field) && json_object_get_boolean(field))
		return 0;
	return -EPROTO;
}

static uint32_t retry_of(struct json_object *answer)
{
	struct json_object *field;
	int64_t ms;

	if (!json_object_object_get_ex(answer, "retry_ms", &field) ||
	    !json_object_is_type(field, json_type_int))
		return 0;
	ms = json_object_get_int64(field);
	return ms < 0 || ms > UINT32_MAX ? 0 : (uint32_t)ms;
}

/* Marks the call as sent to the manager of now; false when there is none after all. */
static bool claim(struct cxl_kv *kv, struct kv_call *call, int *rc)
{
	bool ready;

	pthread_mutex_lock(&kv->lock);
	ready = kv->connected && call->state == KV_UNSENT;
	if (ready) {
		*rc = kv_json_add(call->request, "id", json_object_new_int64((int64_t)call->id));
		if (!*rc && call->arena)
			*rc = kv_json_add(call->request, "arena",
					  json_object_new_int64(call->arena->number));
		call->state = KV_SENT;
		call->connection = kv->connection;
		call->nr_sent++;
	}
	pthread_mutex_unlock(&kv->lock);
	return ready;
}

static int send_call(struct cxl_kv *kv, struct kv_call *call, uint64_t deadline_ns)
{
	int rc = 0;

	pthread_mutex_lock(&kv->send_lock);
	if (claim(kv, call, &rc) && !rc)
		rc = kv_stream_send(&kv->stream, call->request, call->files, call->nr_files,
				    deadline_ns);
	pthread_mutex_unlock(&kv->send_lock);
	/* A lost manager is the helper's to notice; it makes the call unsent again. */
	return rc == -ENOTCONN ? 0 : rc;
}

/* Under lock, which it drops to send. Ends when the call is answered or cannot be. */
static int wait_for_answer(struct cxl_kv *kv, struct kv_call *call, uint64_t deadline_ns)
{
	const struct timespec deadline = {
		.tv_sec = (time_t)(deadline_ns / 1000000000ull),
		.tv_nsec = (long)(deadline_ns % 1000000000ull),
	};
	int rc = 0;

	while (!rc && call->state != KV_ANSWERED) {
		if (call->state == KV_UNSENT && kv->connected) {
			pthread_mutex_unlock(&kv->lock);
			rc = send_call(kv, call, deadline_ns);
			pthread_mutex_lock(&kv->lock);
		} else if (call->state == KV_UNSENT &&
			   (call->never_waits || kv->on_loss == CXL_KV_LOSS_FAIL)) {
			rc = -ENOTCONN;
		} else {
			rc = -pthread_cond_timedwait(&call->changed, &kv->lock, &deadline);
		}
	}
	return call->state == KV_ANSWERED ? 0 : rc;
}

bool kv_is_connection(struct cxl_kv *kv, uint32_t connection)
{
	bool same;

	pthread_mutex_lock(&kv->lock);
	same = kv->connected && kv->connection == connection;
	pthread_mutex_unlock(&kv->lock);
	return same;
}

static void forget(struct cxl_kv *kv, struct kv_call *call)
{
	struct kv_call **at = &kv->calls;

	while (*at != call)
		at = &(*at)->next;
	*at = call->next;
}

int kv_call(struct cxl_kv *kv, struct kv_call *call, struct json_object **answer)
{
	/* Its own time, and the time that a new manager may take to come. */
	uint64_t patience_ms =
		(uint64_t)call->timeout_ms + (call->strict_timeout ? 0 : kv->loss_deadline_ms);
	uint64_t deadline_ns = kv_now_ns() + patience_ms * KV_NS_PER_MS;
	pthread_condattr_t attr;
	int rc;

	if (!call->request)
		return -ENOMEM;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&call->changed, &attr);
	pthread_condattr_destroy(&attr);

	pthread_mutex_lock(&kv->lock);
	call->id = kv->next_id++;
	call->file = -1;
	call->next = kv->calls;
	kv->calls = call;
	rc = wait_for_answer(kv, call, deadline_ns);
	forget(kv, call);
	pthread_mutex_unlock(&kv->lock);

	if (!rc)
		rc = kv_answer_error(call->answer);
	call->retry_ms = call->answer ? retry_of(call->answer) : 0;
	if (answer && call->answer && (!rc || call->takes_refusal))
		*answer = json_object_get(call->answer);
	if (call->file >= 0 && (rc || !call->takes_file))
		close(call->file);
	pthread_cond_destroy(&call->changed);
	json_object_put(call->answer);
	json_object_put(call->request);
	return rc;
}
