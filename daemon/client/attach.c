// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A new connection: connect, hello, and every arena's files again. Runs in
 * cxl_kv_open() and, after a loss, in the helper thread; nobody else uses the
 * stream until `connected` is set, so requests and answers alternate here.
 */
#include "client/objects.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char *answer_message(struct json_object *answer)
{
	struct json_object *field;

	return json_object_object_get_ex(answer, "message", &field) ? json_object_get_string(field)
								    : "no reason given";
}

/* Consumes the request. */
int kv_exchange(struct cxl_kv *kv, struct json_object *request, const int *files, size_t nr_files,
		struct json_object **answer)
{
	uint64_t deadline_ns = kv_now_ns() + KV_ATTACH_MS * KV_NS_PER_MS;
	struct json_object *field;
	int64_t id;
	int rc;

	pthread_mutex_lock(&kv->lock);
	id = (int64_t)kv->next_id++;
	pthread_mutex_unlock(&kv->lock);
	rc = kv_json_add(request, "id", json_object_new_int64(id)) ?:
	     kv_stream_send(&kv->stream, request, files, nr_files, deadline_ns) ?:
	     kv_stream_receive(&kv->stream, deadline_ns, answer);
	json_object_put(request);
	if (rc)
		return rc;
	if (!json_object_object_get_ex(*answer, "id", &field) || json_object_get_int64(field) != id)
		rc = -EPROTO;
	else
		rc = kv_answer_error(*answer);
	if (!rc)
		return 0;
	if (!kv->refused)
		kv_log(kv, "the manager refused: %s (%s)", answer_message(*answer), strerror(-rc));
	kv->refused = true;
	json_object_put(*answer);
	return rc;
}

/* Under lock. Keeps the first device file: another manager's would be as good. */
static void take_userfault_device(struct cxl_kv *kv)
{
	if (kv->userfault_device >= 0)
		return;
	kv->userfault_device = kv->stream.file;
	kv->stream.file = -1;
}

static int hello(struct cxl_kv *kv)
{
	struct json_object *request = kv_request("hello");
	struct json_object *answer, *field;
	int64_t version;
	bool by_module;
	int rc;

	rc = kv_json_add(request, "version", json_object_new_int64(CXL_KV_ABI_VERSION))
		     ?: kv_json_add(request, "name", json_object_new_string(kv->name));
	if (!rc && kv->tenant)
		rc = kv_json_add(request, "tenant", json_object_new_string(kv->tenant));
	if (rc) {
		json_object_put(request);
		return rc;
	}
	rc = kv_exchange(kv, request, NULL, 0, &answer);
	if (rc)
		return rc;
	version = json_object_object_get_ex(answer, "version", &field)
			  ? json_object_get_int64(field)
			  : -1;
	by_module = json_object_object_get_ex(answer, "mode", &field) &&
		    !strcmp(json_object_get_string(field) ?: "", "module");
	json_object_put(answer);
	if (version != CXL_KV_ABI_VERSION) {
		kv_log(kv, "the manager speaks version %lld, this library %d", (long long)version,
		       CXL_KV_ABI_VERSION);
		return -EPROTO;
	}
	pthread_mutex_lock(&kv->lock);
	kv->by_module = by_module;
	take_userfault_device(kv);
	pthread_mutex_unlock(&kv->lock);
	return 0;
}

static int register_again(struct cxl_kv *kv, struct cxl_kv_arena *arena)
{
	struct json_object *request = kv_register_request(arena);
	struct json_object *answer;
	uint32_t number;
	uint64_t key;
	int rc;

	if (!request)
		return -ENOMEM;
	rc = kv_exchange(kv, request, arena->files, kv_register_nr_files(arena), &answer);
	if (rc)
		return rc;
	rc = kv_register_answer(answer, &number, &key);
	json_object_put(answer);
	if (rc)
		return rc;
	pthread_mutex_lock(&kv->lock);
	arena->number = number;
	arena->key = key;
	pthread_mutex_unlock(&kv->lock);
	return 0;
}

static void set_connected(struct cxl_kv *kv)
{
	kv->refused = false;
	pthread_mutex_lock(&kv->lock);
	kv->connected = true;
	kv->connection++;
	for (struct kv_call *call = kv->calls; call; call = call->next)
		pthread_cond_signal(&call->changed);
	pthread_mutex_unlock(&kv->lock);
}

int kv_attach(struct cxl_kv *kv)
{
	int rc = kv_stream_connect(&kv->stream, kv->socket_path);

	if (rc)
		return rc;
	rc = hello(kv);
	pthread_mutex_lock(&kv->arenas_lock);
	for (struct cxl_kv_arena *arena = kv->arenas; arena && !rc; arena = arena->next)
		rc = register_again(kv, arena);
	if (!rc)
		rc = kv_objects_attach(kv);
	if (!rc)
		set_connected(kv);
	pthread_mutex_unlock(&kv->arenas_lock);
	if (rc)
		kv_stream_close(&kv->stream);
	return rc;
}
