// SPDX-License-Identifier: LGPL-2.1-or-later
/* The engine's own tier: opened and asked about over the socket, told of by items. */
#include "client/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_space(const struct cxl_kv_ns *ns)
{
	return kv_forked(ns->kv) ? -EPERM : ns->error;
}

int cxl_kv_tier_open(struct cxl_kv_ns *ns, const struct cxl_kv_tier_options *options)
{
	struct kv_call call = {};
	int rc = check_space(ns);

	if (rc)
		return rc;
	if (!options || options->size < sizeof(*options) || !options->bytes)
		return -EINVAL;
	if (options->size > sizeof(*options))
		return -E2BIG;
	call.request = kv_space_request(ns, "tier_open");
	rc = kv_json_add(call.request, "bytes", kv_decimal(options->bytes));
	if (!rc && options->ack_ms)
		rc = kv_json_add(call.request, "ack_ms", json_object_new_int64(options->ack_ms));
	if (!rc && options->high_permil)
		rc = kv_json_add(call.request, "high_permil",
				 json_object_new_int64(options->high_permil));
	if (!rc && options->low_permil)
		rc = kv_json_add(call.request, "low_permil",
				 json_object_new_int64(options->low_permil));
	if (rc) {
		json_object_put(call.request);
		return rc;
	}
	rc = kv_call(ns->kv, &call, NULL);
	/* Sent twice, it is the first that opened it. */
	return rc == -EBUSY && call.nr_sent > 1 ? 0 : rc;
}

int cxl_kv_tier_close(struct cxl_kv_ns *ns)
{
	struct kv_call call = {};
	int rc = check_space(ns);

	if (rc)
		return rc;
	call.request = kv_space_request(ns, "tier_close");
	return kv_call(ns->kv, &call, NULL);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_key(const char *text, struct cxl_kv_key *key)
{
	if (strlen(text) != (size_t)2 * CXL_KV_KEY_BYTES)
		return -EPROTO;
	for (int i = 0; i < CXL_KV_KEY_BYTES; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EPROTO;
		key->bytes[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

/* [id, "promote" or "demote", key in hexadecimal, group] */
static int read_advice(struct json_object *from, struct cxl_kv_advice *advice)
{
	struct json_object *id, *kind, *key, *group;

	if (!json_object_is_type(from, json_type_array) || json_object_array_length(from) != 4)
		return -EPROTO;
	id = json_object_array_get_idx(from, 0);
	kind = json_object_array_get_idx(from, 1);
	key = json_object_array_get_idx(from, 2);
	group = json_object_array_get_idx(from, 3);
	if (!json_object_is_type(id, json_type_string) ||
	    !json_object_is_type(kind, json_type_string) ||
	    !json_object_is_type(key, json_type_string) ||
	    !json_object_is_type(group, json_type_int))
		return -EPROTO;
	memset(advice, 0, sizeof(*advice));
	advice->id = strtoull(json_object_get_string(id), NULL, 10);
	advice->key.group = (uint32_t)json_object_get_int64(group);
	advice->kind = strcmp(json_object_get_string(kind), "promote") ? CXL_KV_ADVICE_DEMOTE
								       : CXL_KV_ADVICE_PROMOTE;
	return read_key(json_object_get_string(key), &advice->key);
}

static int read_list(struct json_object *answer, struct cxl_kv_advice *advice, size_t nr)
{
	struct json_object *list;
	size_t nr_given;

	if (!json_object_object_get_ex(answer, "advice", &list) ||
	    !json_object_is_type(list, json_type_array))
		return -EPROTO;
	nr_given = json_object_array_length(list);
	if (nr_given > nr)
		return -EPROTO;
	for (size_t i = 0; i < nr_given; i++) {
		int rc = read_advice(json_object_array_get_idx(list, i), &advice[i]);

		if (rc)
			return rc;
	}
	return (int)nr_given;
}

int cxl_kv_advice_wait(struct cxl_kv_ns *ns, struct cxl_kv_advice *advice, size_t nr,
		       uint32_t timeout_ms)
{
	struct kv_call call = {.timeout_ms = timeout_ms};
	int64_t max = nr < INT32_MAX ? (int64_t)nr : INT32_MAX;
	struct json_object *answer;
	int rc = check_space(ns);

	if (rc)
		return rc;
	if (!advice || !nr)
		return -EINVAL;
	call.request = kv_space_request(ns, "advice");
	rc = kv_json_add(call.request, "max", json_object_new_int64(max))
		     ?: kv_json_add(call.request, "deadline_ms", json_object_new_int64(timeout_ms));
	if (rc) {
		json_object_put(call.request);
		return rc;
	}
	rc = kv_call(ns->kv, &call, &answer);
	if (rc)
		return rc;
	rc = read_list(answer, advice, nr);
	json_object_put(answer);
	return rc;
}

int cxl_kv_tier_get_stats(struct cxl_kv_ns *ns, struct cxl_kv_tier_stats *stats)
{
	struct kv_call call = {};
	struct json_object *answer;
	int rc = check_space(ns);

	if (rc)
		return rc;
	if (!stats || stats->size != sizeof(*stats) || stats->reserved)
		return -EINVAL;
	call.request = kv_space_request(ns, "tier_stats");
	rc = kv_call(ns->kv, &call, &answer);
	if (rc)
		return rc;
	rc = kv_json_u64(answer, "bytes", &stats->bytes) ?:
	     kv_json_u64(answer, "blocks", &stats->nr_blocks) ?:
	     kv_json_u64(answer, "promotes", &stats->nr_promotes) ?:
	     kv_json_u64(answer, "demotes", &stats->nr_demotes) ?:
	     kv_json_u64(answer, "done", &stats->nr_done) ?:
	     kv_json_u64(answer, "refused", &stats->nr_refused) ?:
	     kv_json_u64(answer, "expired", &stats->nr_expired);
	json_object_put(answer);
	return rc;
}
