// SPDX-License-Identifier: LGPL-2.1-or-later
/* The register message: what the manager is told of an arena, and what it answers. */
#include "client/internal.h"

#include <errno.h>

static struct json_object *geometry_json(const struct cxl_kv_geometry *g)
{
	struct json_object *json = json_object_new_object();
	const struct {
		const char *name;
		uint32_t value;
	} fields[] = {
		{"nr_slots", g->nr_slots},
		{"nr_layers", g->nr_layers},
		{"nr_kv_heads", g->nr_kv_heads},
		{"head_dim", g->head_dim},
		{"elem_bytes", g->elem_bytes},
		{"tokens_per_block", g->tokens_per_block},
		{"tokens_per_slot", g->tokens_per_slot},
		{"block_bytes", g->block_bytes},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (kv_json_add(json, fields[i].name, json_object_new_int64(fields[i].value))) {
			json_object_put(json);
			return NULL;
		}
	}
	return json;
}

static struct json_object *window_json(const uint32_t *layer_window, uint32_t nr)
{
	struct json_object *json = json_object_new_array();

	for (uint32_t i = 0; json && i < nr; i++) {
		struct json_object *window = json_object_new_int64(layer_window[i]);

		if (!window || json_object_array_add(json, window)) {
			json_object_put(window);
			json_object_put(json);
			return NULL;
		}
	}
	return json;
}

/* The module has told the manager the rest. */
static struct json_object *claim_request(uint32_t module_number)
{
	struct json_object *request = kv_request("register");

	if (!kv_json_add(request, "module_arena", json_object_new_int64(module_number)))
		return request;
	json_object_put(request);
	return NULL;
}

static struct json_object *files_request(const struct cxl_kv_arena *arena)
{
	const struct cxl_kv_geometry *g = &arena->geometry;
	struct json_object *request = kv_request("register");
	int rc = kv_json_add(request, "geometry", geometry_json(g)) ?:
		 kv_json_add(request, "base", kv_decimal((uintptr_t)arena->base)) ?:
		 kv_json_add(request, "ring_entries", json_object_new_int64(arena->nr_ring_entries));

	if (!rc && arena->layer_window)
		rc = kv_json_add(request, "layer_window",
				 window_json(arena->layer_window, g->nr_layers));
	if (!rc && arena->key)
		rc = kv_json_add(request, "key", kv_decimal(arena->key));
	if (!rc)
		return request;
	json_object_put(request);
	return NULL;
}

static int add_cold_format(struct json_object *request, const struct cxl_kv *kv)
{
	static const char *const elem_types[] = {NULL, "fp16", "bf16"};
	static const char *const formats[] = {NULL, "raw", "fp8", "int8", "int4"};
	const char *elem_type = elem_types[kv->elem_type], *format = formats[kv->cold_format];
	int rc = 0;

	if (elem_type)
		rc = kv_json_add(request, "elem_type", json_object_new_string(elem_type));
	if (!rc && format)
		rc = kv_json_add(request, "cold_format", json_object_new_string(format));
	return rc;
}

struct json_object *kv_register_request(const struct cxl_kv_arena *arena)
{
	struct json_object *request =
		arena->module_number ? claim_request(arena->module_number) : files_request(arena);

	if (!request || !add_cold_format(request, arena->kv))
		return request;
	json_object_put(request);
	return NULL;
}

int kv_register_answer(struct json_object *answer, uint32_t *number, uint64_t *key)
{
	struct json_object *field;
	int64_t value;

	if (!json_object_object_get_ex(answer, "arena", &field) ||
	    !json_object_is_type(field, json_type_int))
		return -EPROTO;
	value = json_object_get_int64(field);
	if (value < 0 || value > UINT32_MAX)
		return -EPROTO;
	if (kv_json_u64(answer, "key", key) || !*key)
		return -EPROTO;
	*number = (uint32_t)value;
	return 0;
}
