// SPDX-License-Identifier: LGPL-2.1-or-later
/* How the manager is, by its own word. */
#include "client/internal.h"

#include <errno.h>
#include <string.h>

static int get_flag(struct json_object *from, const char *name, uint32_t flag, uint32_t *flags)
{
	struct json_object *field;

	if (!json_object_object_get_ex(from, name, &field) ||
	    !json_object_is_type(field, json_type_boolean))
		return -EPROTO;
	if (json_object_get_boolean(field))
		*flags |= flag;
	return 0;
}

static int read_health(struct json_object *from, struct cxl_kv_health *health)
{
	return get_flag(from, "frozen", CXL_KV_HEALTH_FROZEN, &health->flags)
		       ?: get_flag(from, "draining", CXL_KV_HEALTH_DRAINING, &health->flags)
		       ?: get_flag(from, "store_failing", CXL_KV_HEALTH_STORE_FAILING,
				   &health->flags)
		       ?: get_flag(from, "no_objects", CXL_KV_HEALTH_NO_OBJECTS, &health->flags)
		       ?: kv_json_u64(from, "uptime_ms", &health->uptime_ms)
		       ?: kv_json_u64(from, "hot_bytes", &health->hot_bytes)
		       ?: kv_json_u64(from, "hot_limit_bytes", &health->hot_limit_bytes)
		       ?: kv_json_u64(from, "warm_bytes", &health->warm_bytes)
		       ?: kv_json_u64(from, "warm_limit_bytes", &health->warm_limit_bytes)
		       ?: kv_json_u64(from, "cold_bytes", &health->cold_bytes)
		       ?: kv_json_u64(from, "cold_limit_bytes", &health->cold_limit_bytes)
		       ?: kv_json_u64(from, "store_errors", &health->nr_store_errors);
}

int cxl_kv_get_health(struct cxl_kv *kv, struct cxl_kv_health *health, uint32_t timeout_ms)
{
	struct kv_call call = {
		.timeout_ms = timeout_ms, .never_waits = true, .strict_timeout = true};
	struct json_object *answer;
	int rc;

	if (kv_forked(kv))
		return -EPERM;
	if (!health || health->size != sizeof(*health) || !timeout_ms)
		return -EINVAL;
	call.request = kv_request("health");
	rc = kv_call(kv, &call, &answer);
	if (rc)
		return rc;
	memset(health, 0, sizeof(*health));
	health->size = sizeof(*health);
	rc = read_health(answer, health);
	json_object_put(answer);
	return rc;
}
