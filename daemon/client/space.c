// SPDX-License-Identifier: LGPL-2.1-or-later
/* Namespaces: opened with an identity at one manager after another, closed. */
#include "client/objects.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_NS_NAME 255

/* ---- the request ---- */

static bool is_utf8(const char *text, size_t room)
{
	size_t nr = strnlen(text, room);

	return kv_utf8_bytes(text, nr) == nr;
}

static int add_text(struct json_object *to, const char *name, const char *text, size_t room)
{
	return kv_json_add(to, name, json_object_new_string_len(text, (int)strnlen(text, room)));
}

static int add_number(struct json_object *to, const char *name, unsigned long long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", value);
	return kv_json_add(to, name, json_object_new_string(text));
}

static int add_real(struct json_object *to, const char *name, double value)
{
	char text[40];

	snprintf(text, sizeof(text), "%.17g", value);
	return kv_json_add(to, name, json_object_new_string(text));
}

#define TEXT(field) (add_text(to, #field, id->field, sizeof(id->field)))
#define NUMBER(field) (add_number(to, #field, id->field))

static struct json_object *identity_object(const struct cxl_kv_identity *id)
{
	struct json_object *to = json_object_new_object();

	if (!(TEXT(model) ?: TEXT(revision) ?: TEXT(weights_hash) ?: TEXT(tokenizer) ?:
	      TEXT(attention) ?: TEXT(rope_scaling) ?: TEXT(hash_algorithm) ?:
	      TEXT(element_type) ?: TEXT(layout) ?: NUMBER(hash_seed) ?: NUMBER(nr_layers) ?:
	      NUMBER(nr_kv_heads) ?: NUMBER(head_dim) ?: NUMBER(tokens_per_block) ?:
	      NUMBER(tp_rank) ?: NUMBER(tp_size) ?: NUMBER(pp_rank) ?: NUMBER(pp_size) ?:
	      add_real(to, "rope_theta", id->rope_theta)))
		return to;
	json_object_put(to);
	return NULL;
}

#define IS_UTF8(field) is_utf8(id->field, sizeof(id->field))

static bool identity_is_utf8(const struct cxl_kv_identity *id)
{
	return IS_UTF8(model) && IS_UTF8(revision) && IS_UTF8(weights_hash) && IS_UTF8(tokenizer) &&
	       IS_UTF8(attention) && IS_UTF8(rope_scaling) && IS_UTF8(hash_algorithm) &&
	       IS_UTF8(element_type) && IS_UTF8(layout);
}

static struct json_object *groups_array(const struct cxl_kv_ns_options *options)
{
	struct json_object *groups = json_object_new_array();

	for (size_t i = 0; groups && i < options->nr_groups; i++) {
		struct json_object *pair = json_object_new_array();

		json_object_array_add(pair, json_object_new_int64(options->groups[i].group));
		json_object_array_add(pair, json_object_new_int64(options->groups[i].object_bytes));
		json_object_array_add(groups, pair);
	}
	return groups;
}

struct json_object *kv_space_request(const struct cxl_kv_ns *ns, const char *op)
{
	struct json_object *request = kv_request(op);

	if (!kv_json_add(request, "namespace", json_object_new_int64(ns->number)))
		return request;
	json_object_put(request);
	return NULL;
}

static struct json_object *open_request(const struct cxl_kv_ns_options *options)
{
	struct json_object *request = kv_request("namespace");
	bool replace = options->flags & CXL_KV_NS_REPLACE;
	char salt[2 * CXL_KV_SALT_BYTES + 1];

	for (int i = 0; i < CXL_KV_SALT_BYTES; i++)
		sprintf(salt + 2 * i, "%02x", options->identity->tenant_salt[i]);
	if (!(kv_json_add(request, "name", json_object_new_string(options->name)) ?:
	      kv_json_add(request, "salt", json_object_new_string(salt)) ?:
	      kv_json_add(request, "replace", json_object_new_boolean(replace)) ?:
	      kv_json_add(request, "groups", groups_array(options)) ?:
	      kv_json_add(request, "identity", identity_object(options->identity))))
		return request;
	json_object_put(request);
	return NULL;
}

static int check_options(const struct cxl_kv_ns_options *options)
{
	const struct cxl_kv_identity *id;

	if (!options || options->size != sizeof(*options))
		return -EINVAL;
	id = options->identity;
	if ((options->flags & ~CXL_KV_NS_REPLACE) || !options->name || !*options->name ||
	    strlen(options->name) > MAX_NS_NAME || !id || id->size != sizeof(*id) || id->reserved ||
	    !options->groups || !options->nr_groups || options->nr_groups > CXL_KV_MAX_GROUPS ||
	    !is_utf8(options->name, MAX_NS_NAME) || !identity_is_utf8(id))
		return -EINVAL;
	for (size_t i = 0; i < options->nr_groups; i++) {
		if (!options->groups[i].object_bytes ||
		    options->groups[i].object_bytes > CXL_KV_MAX_OBJECT_BYTES)
			return -EINVAL;
	}
	return 0;
}

/* ---- the index ---- */

static void free_index(struct kv_index *index)
{
	munmap(index->header, index->bytes);
	free(index);
}

static int map_index(int file, uint64_t bytes, struct kv_index **out)
{
	struct kv_index *index = calloc(1, sizeof(*index));
	void *at;

	if (!index)
		return -ENOMEM;
	at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
	if (at == MAP_FAILED) {
		free(index);
		return -errno;
	}
	index->header = at;
	index->bytes = bytes;
	if (index->header->magic != CXL_KV_INDEX_MAGIC || !index->header->nr_slots ||
	    (index->header->nr_slots & (index->header->nr_slots - 1)) ||
	    cxl_kv_index_bytes(index->header->nr_slots) != bytes ||
	    madvise(at, bytes, MADV_DONTFORK)) {
		free_index(index);
		return -EPROTO;
	}
	*out = index;
	return 0;
}

int kv_space_answer(struct cxl_kv_ns *ns, struct json_object *answer, int file)
{
	struct json_object *number, *bytes;
	struct kv_index *index = NULL;
	int rc = -EPROTO;

	if (file >= 0 && json_object_object_get_ex(answer, "namespace", &number) &&
	    json_object_object_get_ex(answer, "index_bytes", &bytes))
		rc = map_index(file, strtoull(json_object_get_string(bytes), NULL, 10), &index);
	if (file >= 0)
		close(file);
	if (rc)
		return rc;
	kv_space_lost(ns);
	ns->number = (uint32_t)json_object_get_int64(number);
	pthread_mutex_lock(&ns->event_lock);
	ns->next_event = __atomic_load_n(&index->header->nr_events, __ATOMIC_ACQUIRE);
	__atomic_store_n(&ns->index, index, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&ns->event_lock);
	return 0;
}

/* A look-up may be in the index: it stays mapped until the namespace is closed. */
void kv_space_lost(struct cxl_kv_ns *ns)
{
	struct kv_index *index = __atomic_exchange_n(&ns->index, NULL, __ATOMIC_ACQ_REL);

	if (!index)
		return;
	index->retired = ns->retired;
	ns->retired = index;
}

void kv_space_free(struct cxl_kv_ns *ns)
{
	kv_space_lost(ns);
	while (ns->retired) {
		struct kv_index *index = ns->retired;

		ns->retired = index->retired;
		/* In a forked child the mapping is not there. */
		if (kv_forked(ns->kv))
			free(index);
		else
			free_index(index);
	}
	free(ns->request);
	free(ns);
}

/* ---- open and close ---- */

/* What the manager says of the difference comes with the error. */
static void copy_field(const char *name, char *field, size_t field_bytes)
{
	if (field && field_bytes)
		snprintf(field, field_bytes, "%s", name);
}

static int open_once(struct cxl_kv_ns *ns, char *field, size_t field_bytes, bool *listed)
{
	struct json_object *answer = NULL, *differs;
	struct kv_call call = {.request = json_tokener_parse(ns->request),
			       .takes_file = true,
			       .takes_refusal = true};
	struct cxl_kv *kv = ns->kv;
	int rc = kv_call(kv, &call, &answer);

	if (rc == -ESTALE && answer && json_object_object_get_ex(answer, "field", &differs))
		copy_field(json_object_get_string(differs), field, field_bytes);
	if (rc) {
		json_object_put(answer);
		return rc;
	}
	pthread_mutex_lock(&kv->arenas_lock);
	rc = kv_space_answer(ns, answer, call.file);
	*listed = kv_is_connection(kv, call.connection);
	if (!rc && *listed) {
		ns->next = kv->objects->spaces;
		kv->objects->spaces = ns;
	}
	pthread_mutex_unlock(&kv->arenas_lock);
	json_object_put(answer);
	return rc;
}

int cxl_kv_ns_open(struct cxl_kv *kv, const struct cxl_kv_ns_options *options, char *field,
		   size_t field_bytes, struct cxl_kv_ns **out)
{
	struct json_object *request;
	struct kv_objects *objects;
	struct cxl_kv_ns *ns;
	bool listed = false;
	int rc = check_options(options);

	if (rc || !out)
		return rc ?: -EINVAL;
	rc = kv_objects_get(kv, &objects);
	if (rc)
		return rc;
	request = open_request(options);
	ns = calloc(1, sizeof(*ns));
	if (!request || !ns) {
		json_object_put(request);
		free(ns);
		return -ENOMEM;
	}
	ns->kv = kv;
	pthread_mutex_init(&ns->event_lock, NULL);
	ns->request = strdup(json_object_to_json_string(request));
	json_object_put(request);
	rc = ns->request ? 0 : -ENOMEM;
	while (!rc && !listed)
		rc = open_once(ns, field, field_bytes, &listed);
	if (rc) {
		kv_space_free(ns);
		return rc;
	}
	*out = ns;
	return 0;
}

static void unlist(struct cxl_kv_ns *ns)
{
	struct cxl_kv_ns **link = &ns->kv->objects->spaces;

	while (*link != ns)
		link = &(*link)->next;
	*link = ns->next;
}

void cxl_kv_ns_close(struct cxl_kv_ns *ns)
{
	struct kv_call call = {.never_waits = true};
	struct cxl_kv *kv;

	if (!ns)
		return;
	kv = ns->kv;
	if (kv_forked(kv)) {
		unlist(ns);
		kv_space_free(ns);
		return;
	}
	pthread_mutex_lock(&kv->arenas_lock);
	unlist(ns);
	pthread_mutex_unlock(&kv->arenas_lock);
	call.request = kv_space_request(ns, "namespace_close");
	kv_call(kv, &call, NULL);
	kv_space_free(ns);
}
