// SPDX-License-Identifier: LGPL-2.1-or-later
/* The question whether to fetch or to recompute; the manager, which knows the tiers, answers it. */
#include "client/internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define KNOWN_FLAGS (CXL_KV_DECIDE_LATENCY | CXL_KV_DECIDE_CAN_SPLIT | CXL_KV_DECIDE_BYTES)

static int check(const struct cxl_kv_decide_args *args)
{
	/* Written so that NaN fails. */
	if (args->flags & ~KNOWN_FLAGS || args->reserved || !(args->prefill_tokens_per_s > 0) ||
	    isinf(args->prefill_tokens_per_s) || !(args->return_probability >= 0) ||
	    !(args->return_probability <= 1) || (args->margin != 0 && !(args->margin >= 1)) ||
	    isinf(args->margin))
		return -EINVAL;
	return args->size == sizeof(*args) ? 0 : args->size > sizeof(*args) ? -E2BIG : -EINVAL;
}

static int add_bytes(struct json_object *request, const struct cxl_kv_decide_args *args)
{
	return kv_json_add(request, "hot_bytes", kv_decimal(args->hot_bytes)) ?:
	       kv_json_add(request, "warm_bytes", kv_decimal(args->warm_bytes)) ?:
	       kv_json_add(request, "cold_bytes", kv_decimal(args->cold_bytes));
}

static uint64_t wake_ns(struct cxl_kv *kv)
{
	uint64_t ns;

	pthread_mutex_lock(&kv->lock);
	ns = kv->wake_ns;
	pthread_mutex_unlock(&kv->lock);
	return ns;
}

static struct json_object *decide_request(struct cxl_kv *kv, const struct cxl_kv_decide_args *args)
{
	struct json_object *request = kv_request("decide");
	bool latency = args->flags & CXL_KV_DECIDE_LATENCY;
	bool split = args->flags & CXL_KV_DECIDE_CAN_SPLIT;
	double probability = args->return_probability;
	int rc = kv_json_add(request, "tokens", json_object_new_int64((int64_t)args->tokens)) ?:
		 kv_json_add(request, "prefill_tokens_per_s",
			     json_object_new_double(args->prefill_tokens_per_s)) ?:
		 kv_json_add(request, "return_probability", json_object_new_double(probability)) ?:
		 kv_json_add(request, "wake_ns", kv_decimal(wake_ns(kv))) ?:
		 kv_json_add(request, "latency", json_object_new_boolean(latency)) ?:
		 kv_json_add(request, "split", json_object_new_boolean(split));

	if (!rc && args->margin != 0)
		rc = kv_json_add(request, "margin", json_object_new_double(args->margin));
	if (!rc && args->flags & CXL_KV_DECIDE_BYTES)
		rc = add_bytes(request, args);
	else if (!rc)
		rc = kv_json_add(request, "slot", json_object_new_int64(args->slot));
	if (!rc)
		return request;
	json_object_put(request);
	return NULL;
}

static int get_verdict(struct json_object *answer, uint32_t *verdict)
{
	static const char *const names[] = {
		[CXL_KV_FETCH] = "fetch",
		[CXL_KV_RECOMPUTE] = "recompute",
		[CXL_KV_SPLIT] = "split",
		[CXL_KV_DROP] = "drop",
	};
	struct json_object *field;

	if (!json_object_object_get_ex(answer, "verdict", &field) ||
	    !json_object_is_type(field, json_type_string))
		return -EPROTO;
	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(names[i], json_object_get_string(field))) {
			*verdict = i;
			return 0;
		}
	}
	return -EPROTO;
}

int cxl_kv_decide(struct cxl_kv_arena *arena, const struct cxl_kv_decide_args *args,
		  struct cxl_kv_decision *decision)
{
	struct kv_call call = {.arena = arena};
	struct json_object *answer;
	int rc;

	if (!args || !decision)
		return -EINVAL;
	if (kv_forked(arena->kv))
		return -EPERM;
	rc = check(args);
	if (rc)
		return rc;
	if (!(args->flags & CXL_KV_DECIDE_BYTES) && args->slot >= arena->geometry.nr_slots)
		return -EINVAL;
	call.request = decide_request(arena->kv, args);
	rc = kv_call(arena->kv, &call, &answer);
	if (rc)
		return rc;
	memset(decision, 0, sizeof(*decision));
	rc = get_verdict(answer, &decision->verdict) ?:
	     kv_json_u64(answer, "split_tokens", &decision->split_tokens) ?:
	     kv_json_u64(answer, "fetch_ns", &decision->fetch_ns) ?:
	     kv_json_u64(answer, "recompute_ns", &decision->recompute_ns) ?:
	     kv_json_u64(answer, "chosen_ns", &decision->chosen_ns);
	json_object_put(answer);
	return rc;
}
