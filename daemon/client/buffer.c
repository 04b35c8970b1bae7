// SPDX-License-Identifier: LGPL-2.1-or-later
/* Buffers that the caller registered: the manager copies to and from their file. */
#include "client/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct json_object *kv_buffer_request(uint32_t number, uint64_t bytes)
{
	struct json_object *request = kv_request("buffer");
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	if (!kv_json_add(request, "buffer", json_object_new_int64(number)) &&
	    !kv_json_add(request, "bytes", json_object_new_string(text)))
		return request;
	json_object_put(request);
	return NULL;
}

const struct cxl_kv_buffer *kv_buffer_find(const struct kv_objects *objects, const void *at,
					   size_t bytes)
{
	for (const struct cxl_kv_buffer *buffer = objects->buffers; buffer; buffer = buffer->next) {
		size_t offset = (size_t)((const char *)at - buffer->at);

		if ((const char *)at >= buffer->at && offset <= buffer->bytes &&
		    bytes <= buffer->bytes - offset)
			return buffer;
	}
	return NULL;
}

/* Tells the manager of now, and lists it where the next one finds it. */
static int list_buffer(struct cxl_kv *kv, struct cxl_kv_buffer *buffer)
{
	bool listed = false;

	while (!listed) {
		struct kv_call call = {
			.request =
				kv_buffer_request(buffer->number, buffer->offset + buffer->bytes),
			.files = &buffer->fd,
			.nr_files = 1,
		};
		int rc = kv_call(kv, &call, NULL);

		if (rc)
			return rc;
		pthread_mutex_lock(&kv->arenas_lock);
		listed = kv_is_connection(kv, call.connection);
		if (listed) {
			buffer->next = kv->objects->buffers;
			kv->objects->buffers = buffer;
		}
		pthread_mutex_unlock(&kv->arenas_lock);
	}
	return 0;
}

int cxl_kv_register_buffer(struct cxl_kv *kv, int fd, uint64_t offset, void *at, size_t bytes,
			   struct cxl_kv_buffer **out)
{
	struct kv_objects *objects;
	struct cxl_kv_buffer *buffer;
	int rc;

	if (!at || !bytes || !out || offset + bytes < bytes)
		return -EINVAL;
	rc = kv_objects_get(kv, &objects);
	if (rc)
		return rc;
	buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return -ENOMEM;
	buffer->kv = kv;
	buffer->offset = offset;
	buffer->at = at;
	buffer->bytes = bytes;
	buffer->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_lock(&kv->arenas_lock);
	buffer->number = objects->next_buffer++;
	pthread_mutex_unlock(&kv->arenas_lock);
	rc = buffer->fd < 0 ? -errno : list_buffer(kv, buffer);
	if (rc) {
		if (buffer->fd >= 0)
			close(buffer->fd);
		free(buffer);
		return rc;
	}
	*out = buffer;
	return 0;
}

static void unlist_buffer(struct cxl_kv_buffer *buffer)
{
	struct cxl_kv_buffer **link = &buffer->kv->objects->buffers;

	while (*link != buffer)
		link = &(*link)->next;
	*link = buffer->next;
}

int cxl_kv_unregister_buffer(struct cxl_kv_buffer *buffer)
{
	struct kv_call call = {.never_waits = true};
	int rc = 0;

	if (!buffer)
		return 0;
	if (!kv_forked(buffer->kv)) {
		call.request = kv_request("buffer_remove");
		rc = kv_json_add(call.request, "buffer", json_object_new_int64(buffer->number));
		if (rc) {
			json_object_put(call.request);
			return rc;
		}
		rc = kv_call(buffer->kv, &call, NULL);
		if (rc == -EBUSY)
			return rc;
		pthread_mutex_lock(&buffer->kv->arenas_lock);
		unlist_buffer(buffer);
		pthread_mutex_unlock(&buffer->kv->arenas_lock);
	} else {
		unlist_buffer(buffer);
	}
	close(buffer->fd);
	free(buffer);
	return 0;
}
