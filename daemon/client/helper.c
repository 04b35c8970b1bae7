// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The helper thread: receives answers and hands them to the callers that wait;
 * when the manager is lost, looks for the next one until there is one. It takes
 * no signals: they belong to the engine's threads.
 */
#include "client/objects.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_RETRY_MS 10
#define LAST_RETRY_MS 1000

/* Gives the answer to its call. One that nobody waits for came too late: not an error. */
static int dispatch(struct cxl_kv *kv, struct json_object *answer)
{
	struct json_object *field;
	struct kv_call *call;
	uint64_t id;

	if (!json_object_object_get_ex(answer, "id", &field) ||
	    !json_object_is_type(field, json_type_int)) {
		json_object_put(answer);
		return -EPROTO;
	}
	id = (uint64_t)json_object_get_int64(field);
	pthread_mutex_lock(&kv->lock);
	for (call = kv->calls; call; call = call->next) {
		if (call->id == id && call->state == KV_SENT)
			break;
	}
	if (call) {
		call->answer = answer;
		call->file = kv->stream.file;
		kv->stream.file = -1;
		call->state = KV_ANSWERED;
		pthread_cond_signal(&call->changed);
	}
	pthread_mutex_unlock(&kv->lock);
	if (!call)
		json_object_put(answer);
	return 0;
}

/* Returns what ended the connection. */
static int serve(struct cxl_kv *kv)
{
	struct json_object *answer;
	int rc;

	do
		rc = kv_stream_receive(&kv->stream, KV_NO_DEADLINE, &answer)
			     ?: dispatch(kv, answer);
	while (!rc);
	return rc;
}

static void disconnect(struct cxl_kv *kv)
{
	/* Ends a send that waits for room, and with it the hold on send_lock. */
	shutdown(kv->stream.fd, SHUT_RDWR);
	pthread_mutex_lock(&kv->send_lock);
	pthread_mutex_lock(&kv->lock);
	kv->connected = false;
	for (struct kv_call *call = kv->calls; call; call = call->next) {
		if (call->state == KV_SENT)
			call->state = KV_UNSENT;
		pthread_cond_signal(&call->changed);
	}
	pthread_mutex_unlock(&kv->lock);
	kv_stream_close(&kv->stream);
	pthread_mutex_unlock(&kv->send_lock);
	kv_objects_lost(kv);
}

/*
 * Returns 0 with a new connection, or -ECANCELED. wait_ms: the pause before it
 * looks, which grows from try to try.
 */
static int find_manager(struct cxl_kv *kv, uint64_t *wait_ms)
{
	for (;;) {
		int rc = 0;

		if (*wait_ms)
			rc = kv_stream_wait(&kv->stream, -1, 0,
					    kv_now_ns() + *wait_ms * KV_NS_PER_MS);
		if (rc == -ECANCELED)
			return rc;
		*wait_ms = *wait_ms ? *wait_ms * 2 : FIRST_RETRY_MS;
		if (*wait_ms > LAST_RETRY_MS)
			*wait_ms = LAST_RETRY_MS;
		rc = kv_attach(kv);
		if (!rc || rc == -ECANCELED)
			return rc;
	}
}

static void *helper_main(void *data)
{
	struct cxl_kv *kv = data;
	uint64_t wait_ms = 0;
	int rc = 0;

	pthread_setname_np(pthread_self(), "cxl_kv");
	while (rc != -ECANCELED) {
		const uint64_t begin = kv_now_ns();

		rc = serve(kv);
		disconnect(kv);
		if (rc == -ECANCELED)
			break;
		kv_log(kv, "manager lost (%s), waiting for a new one",
		       rc == -ENOTCONN ? "it hung up" : strerror(-rc));
		/* One that hangs up at once, again and again, is not asked as often. */
		if (kv_now_ns() - begin > LAST_RETRY_MS * KV_NS_PER_MS)
			wait_ms = 0;
		rc = find_manager(kv, &wait_ms);
		if (!rc)
			kv_log(kv, "manager found");
	}
	return NULL;
}

int kv_helper_start(struct cxl_kv *kv)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&kv->helper, NULL, helper_main, kv);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

void kv_helper_stop(struct cxl_kv *kv)
{
	eventfd_write(kv->stream.wake_fd, 1);
	pthread_join(kv->helper, NULL);
}
