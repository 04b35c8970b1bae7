// SPDX-License-Identifier: LGPL-2.1-or-later
/* Sessions: what becomes of all blocks of a slot. */
#include "client/internal.h"

#include <errno.h>

/* How long the manager tries when nobody waits: what is asked for later waits behind it. */
#define BACKGROUND_WAKE_MS 5000

static int check_slot(const struct cxl_kv_arena *arena, uint32_t slot)
{
	if (kv_forked(arena->kv))
		return -EPERM;
	return slot < arena->geometry.nr_slots ? 0 : -EINVAL;
}

/* A request about the slot; NULL without memory. */
static struct json_object *slot_request(const char *op, uint32_t slot)
{
	struct json_object *request = kv_request(op);

	if (!kv_json_add(request, "slot", json_object_new_int64(slot)))
		return request;
	json_object_put(request);
	return NULL;
}

static int call_session(struct cxl_kv_arena *arena, uint32_t slot, const char *state,
			uint32_t *nr_sent, uint32_t *retry_ms)
{
	struct kv_call call = {.arena = arena};
	int rc = check_slot(arena, slot);

	if (rc)
		return rc;
	call.request = slot_request("session", slot);
	rc = kv_json_add(call.request, "state", json_object_new_string(state));
	if (rc) {
		json_object_put(call.request);
		return rc;
	}
	rc = kv_call(arena->kv, &call, NULL);
	*nr_sent = call.nr_sent;
	*retry_ms = call.retry_ms;
	return rc;
}

int cxl_kv_session_open(struct cxl_kv_arena *arena, uint32_t slot, uint32_t *retry_ms)
{
	uint32_t nr_sent = 0, again_ms = 0;
	int rc = call_session(arena, slot, "open", &nr_sent, &again_ms);

	if (retry_ms)
		*retry_ms = again_ms;
	/* Sent twice, it is the first that found the slot free and opened it. */
	return rc == -EBUSY && !again_ms && nr_sent > 1 ? 0 : rc;
}

int cxl_kv_session_close(struct cxl_kv_arena *arena, uint32_t slot)
{
	uint32_t nr_sent = 0, again_ms = 0;

	return call_session(arena, slot, "close", &nr_sent, &again_ms);
}

int cxl_kv_session_touch(struct cxl_kv_arena *arena, uint32_t slot)
{
	uint32_t nr_sent = 0, again_ms = 0;

	return call_session(arena, slot, "touch", &nr_sent, &again_ms);
}

int cxl_kv_session_park(struct cxl_kv_arena *arena, uint32_t slot)
{
	struct kv_call call = {.arena = arena};
	int rc = check_slot(arena, slot);

	if (rc)
		return rc;
	call.request = slot_request("park", slot);
	return kv_call(arena->kv, &call, NULL);
}

int cxl_kv_session_prefetch(struct cxl_kv_arena *arena, uint32_t slot, uint32_t position,
			    uint32_t window)
{
	struct kv_call call = {.arena = arena};
	int rc = check_slot(arena, slot);

	if (!rc && position > arena->geometry.tokens_per_slot)
		rc = -EINVAL;
	if (rc)
		return rc;
	call.request = slot_request("prefetch", slot);
	rc = kv_json_add(call.request, "position", json_object_new_int64(position))
		     ?: kv_json_add(call.request, "window", json_object_new_int64(window));
	if (rc) {
		json_object_put(call.request);
		return rc;
	}
	return kv_call(arena->kv, &call, NULL);
}

/*
 * What a wake takes here beside its waits and the transfer, which the manager
 * measures. In small steps, so near the median: some are disturbed.
 */
static void learn_wake(struct cxl_kv *kv, struct json_object *answer, uint64_t took_ns)
{
	uint64_t waited_ns, transfer_ns, known_ns, step_ns;

	if (kv_json_u64(answer, "waited_ns", &waited_ns) ||
	    kv_json_u64(answer, "transfer_ns", &transfer_ns) || waited_ns > took_ns ||
	    transfer_ns > took_ns - waited_ns)
		return;
	took_ns -= waited_ns + transfer_ns;
	pthread_mutex_lock(&kv->lock);
	known_ns = kv->wake_ns ?: took_ns;
	step_ns = known_ns / 8;
	if (took_ns > known_ns + step_ns)
		took_ns = known_ns + step_ns;
	else if (took_ns < known_ns - step_ns)
		took_ns = known_ns - step_ns;
	kv->wake_ns = took_ns;
	pthread_mutex_unlock(&kv->lock);
}

int cxl_kv_session_wake(struct cxl_kv_arena *arena, uint32_t slot, uint32_t timeout_ms,
			uint32_t *retry_ms)
{
	struct kv_call call = {.arena = arena, .timeout_ms = timeout_ms};
	uint32_t deadline_ms = timeout_ms ?: BACKGROUND_WAKE_MS;
	struct json_object *answer = NULL;
	uint64_t begin_ns = kv_now_ns();
	int rc = check_slot(arena, slot);

	if (retry_ms)
		*retry_ms = 0;
	if (rc)
		return rc;
	call.request = slot_request("wake", slot);
	rc = kv_json_add(call.request, "wait", json_object_new_boolean(timeout_ms != 0))
		     ?: kv_json_add(call.request, "deadline_ms",
				    json_object_new_int64(deadline_ms));
	if (rc) {
		json_object_put(call.request);
		return rc;
	}
	rc = kv_call(arena->kv, &call, &answer);
	if (answer && call.nr_sent == 1)
		learn_wake(arena->kv, answer, kv_now_ns() - begin_ns);
	json_object_put(answer);
	if (retry_ms)
		*retry_ms = call.retry_ms;
	return rc;
}
