// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What a connection has for keyed objects, and what becomes of it when the
 * manager changes: each gets new memory, so that what the last one may still
 * write reaches nobody.
 */
#include "client/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* The manager takes no longer to answer a cancel than to copy what it is at. */
#define KV_STOP_MS 5000

static int new_memory(const char *name, uint64_t bytes, int *file, void **at)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *mapping;

	if (fd < 0)
		return -errno;
	*file = fd;
	if (ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapping == MAP_FAILED)
		return -errno;
	*at = mapping;
	return madvise(mapping, bytes, MADV_DONTFORK) ? -errno : 0;
}

static void drop_memory(struct kv_objects *objects)
{
	if (objects->memory_at)
		munmap(objects->memory_at, CXL_KV_LANES_BYTES);
	if (objects->staging_at)
		munmap(objects->staging_at, KV_NR_STAGED * KV_STAGING_BYTES);
	if (objects->memory >= 0)
		close(objects->memory);
	if (objects->staging >= 0)
		close(objects->staging);
	objects->memory_at = objects->staging_at = NULL;
	objects->memory = objects->staging = -1;
}

/* Under the lane's lock. Nothing of it is in flight any more. */
static void reset_lane(struct kv_objects *objects, int i)
{
	struct kv_lane *lane = &objects->lanes[i];

	lane->shared = objects->memory_at ? (struct cxl_kv_lane *)objects->memory_at + i : NULL;
	lane->item_head = lane->result_tail = lane->nr_polls = 0;
	lane->nr_free = CXL_KV_LANE_ENTRIES;
	for (uint32_t id = 0; id < CXL_KV_LANE_ENTRIES; id++)
		lane->free_ids[id] = (uint16_t)(CXL_KV_LANE_ENTRIES - 1 - id);
	if (i < KV_NR_STAGED)
		lane->staging = (char *)objects->staging_at + (size_t)i * KV_STAGING_BYTES;
}

static int renew_memory(struct cxl_kv *kv, struct kv_objects *objects)
{
	uint64_t staging_bytes = KV_NR_STAGED * KV_STAGING_BYTES;
	int rc;

	for (int i = 0; i < CXL_KV_NR_LANES; i++)
		pthread_mutex_lock(&objects->lanes[i].lock);
	drop_memory(objects);
	rc = new_memory("cxl_kv_rings", CXL_KV_LANES_BYTES, &objects->memory, &objects->memory_at)
		     ?: new_memory("cxl_kv_staging", staging_bytes, &objects->staging,
				   &objects->staging_at);
	if (!rc && mlock(objects->staging_at, staging_bytes) && !objects->unlocked_told) {
		kv_log(kv,
		       "the staging pool is not locked into memory (%s): raise RLIMIT_MEMLOCK "
		       "to 32 MiB",
		       strerror(errno));
		objects->unlocked_told = true;
	}
	for (int i = 0; i < CXL_KV_NR_LANES; i++) {
		reset_lane(objects, i);
		pthread_mutex_unlock(&objects->lanes[i].lock);
	}
	return rc;
}

void kv_objects_lost(struct cxl_kv *kv)
{
	struct kv_objects *objects = kv->objects;

	if (!objects)
		return;
	pthread_mutex_lock(&kv->arenas_lock);
	for (struct cxl_kv_ns *ns = objects->spaces; ns; ns = ns->next)
		kv_space_lost(ns);
	pthread_mutex_unlock(&kv->arenas_lock);
	for (int i = 0; i < CXL_KV_NR_LANES; i++) {
		struct kv_lane *lane = &objects->lanes[i];

		pthread_mutex_lock(&lane->lock);
		kv_lane_reap(lane); /* what it had done, it had done */
		__atomic_store_n(&objects->attached, false, __ATOMIC_RELAXED);
		for (uint32_t id = 0; id < CXL_KV_LANE_ENTRIES; id++) {
			if (lane->out[id].job)
				kv_lane_end_item(lane, id, -ENOTCONN);
		}
		pthread_mutex_unlock(&lane->lock);
		eventfd_write(lane->event_fd, 1);
	}
}

/* Consumes the request; only errors matter. */
static int tell(struct cxl_kv *kv, struct json_object *request, const int *files, size_t nr_files)
{
	struct json_object *answer;
	int rc = request ? kv_exchange(kv, request, files, nr_files, &answer) : -ENOMEM;

	if (!rc)
		json_object_put(answer);
	return rc;
}

static int attach_space(struct cxl_kv *kv, struct cxl_kv_ns *ns)
{
	struct json_object *request = json_tokener_parse(ns->request);
	struct json_object *answer;
	int rc, file;

	if (!request)
		return -ENOMEM;
	rc = kv_exchange(kv, request, NULL, 0, &answer);
	if (rc == -ENOTCONN || rc == -ETIMEDOUT || rc == -EPROTO || rc == -ECANCELED)
		return rc;
	ns->error = rc; /* the other namespaces need not suffer for it */
	if (rc)
		return 0;
	file = kv->stream.file;
	kv->stream.file = -1;
	rc = kv_space_answer(ns, answer, file);
	json_object_put(answer);
	return rc;
}

static void ring_files(const struct kv_objects *objects, int *files)
{
	files[CXL_KV_LANES_FILE] = objects->memory;
	files[CXL_KV_DOORBELL_FILE] = objects->doorbell;
	for (int i = 0; i < CXL_KV_NR_LANES; i++)
		files[CXL_KV_EVENTS_FILE + i] = objects->lanes[i].event_fd;
}

static struct json_object *staging_request(void)
{
	return kv_buffer_request(KV_STAGING_BUFFER, KV_NR_STAGED * KV_STAGING_BYTES);
}

/* Under arenas_lock. */
int kv_objects_attach(struct cxl_kv *kv)
{
	struct kv_objects *objects = kv->objects;
	int files[CXL_KV_NR_LANE_FILES];
	int rc;

	if (!objects)
		return 0;
	rc = renew_memory(kv, objects);
	if (rc)
		return rc;
	/* Counted since this manager serves us. */
	__atomic_store_n(&objects->nr_lookups, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&objects->nr_hits, 0, __ATOMIC_RELAXED);
	ring_files(objects, files);
	rc = tell(kv, kv_request("rings"), files, CXL_KV_NR_LANE_FILES)
		     ?: tell(kv, staging_request(), &objects->staging, 1);
	for (struct cxl_kv_buffer *buffer = objects->buffers; buffer && !rc; buffer = buffer->next)
		rc = tell(kv, kv_buffer_request(buffer->number, buffer->offset + buffer->bytes),
			  &buffer->fd, 1);
	for (struct cxl_kv_ns *ns = objects->spaces; ns && !rc; ns = ns->next)
		rc = attach_space(kv, ns);
	for (int i = 0; i < CXL_KV_NR_LANES && !rc; i++) {
		pthread_mutex_lock(&objects->lanes[i].lock);
		__atomic_store_n(&objects->attached, true, __ATOMIC_RELAXED);
		pthread_mutex_unlock(&objects->lanes[i].lock);
	}
	return rc;
}

/* ---- the first use ---- */

static struct kv_objects *new_objects(void)
{
	struct kv_objects *objects = calloc(1, sizeof(*objects));

	if (!objects)
		return NULL;
	objects->memory = objects->staging = -1;
	objects->next_job = 1;
	objects->next_buffer = KV_STAGING_BUFFER + 1;
	objects->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&objects->call_lock, NULL);
	for (int i = 0; i < CXL_KV_NR_LANES; i++) {
		objects->lanes[i].event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		objects->lanes[i].last = &objects->lanes[i].first;
		pthread_mutex_init(&objects->lanes[i].lock, NULL);
	}
	return objects; /* a file that could not be had the manager refuses */
}

static void free_objects(struct kv_objects *objects, bool forked)
{
	if (!objects)
		return;
	for (int i = 0; i < CXL_KV_NR_LANES; i++) {
		struct kv_job *job, *next;

		for (job = objects->lanes[i].first; job; job = next) {
			next = job->next;
			free(job);
		}
		if (objects->lanes[i].event_fd >= 0)
			close(objects->lanes[i].event_fd);
	}
	if (objects->doorbell >= 0)
		close(objects->doorbell);
	if (forked) /* the mappings are not there, and their place may be another's */
		objects->memory_at = objects->staging_at = NULL;
	drop_memory(objects);
	free(objects);
}

/* The same request for a connection that is in use. Says which one answered. */
static int call(struct cxl_kv *kv, struct json_object *request, const int *files, size_t nr_files,
		uint32_t *connection)
{
	struct kv_call call = {.request = request, .files = files, .nr_files = nr_files};
	int rc = kv_call(kv, &call, NULL);

	*connection = call.connection;
	return rc;
}

/* A manager lost in between took what it knew with it: once more, with new memory. */
static int join(struct cxl_kv *kv, struct kv_objects *objects)
{
	bool joined = false;

	while (!joined) {
		int files[CXL_KV_NR_LANE_FILES];
		uint32_t first, second;
		int rc = renew_memory(kv, objects);

		if (rc)
			return rc;
		ring_files(objects, files);
		rc = call(kv, kv_request("rings"), files, CXL_KV_NR_LANE_FILES, &first)
			     ?: call(kv, staging_request(), &objects->staging, 1, &second);
		if (rc)
			return rc;
		pthread_mutex_lock(&kv->arenas_lock);
		joined = kv_is_connection(kv, first) && first == second;
		__atomic_store_n(&objects->attached, joined, __ATOMIC_RELAXED);
		if (joined)
			kv->objects = objects;
		pthread_mutex_unlock(&kv->arenas_lock);
	}
	return 0;
}

int kv_objects_get(struct cxl_kv *kv, struct kv_objects **out)
{
	struct kv_objects *objects;
	int rc = 0;

	if (kv_forked(kv))
		return -EPERM;
	pthread_mutex_lock(&kv->objects_lock);
	if (!kv->objects) {
		objects = new_objects();
		rc = objects ? join(kv, objects) : -ENOMEM;
		if (rc)
			free_objects(objects, false);
	}
	*out = kv->objects;
	pthread_mutex_unlock(&kv->objects_lock);
	return rc;
}

void kv_objects_stop(struct cxl_kv *kv)
{
	if (!kv->objects || kv_forked(kv))
		return;
	for (uint32_t class = 0; class < KV_NR_STAGED; class ++) {
		const struct cxl_kv_item all = {.op = CXL_KV_ITEM_CANCEL, .group = class};

		kv_item_call(kv, &all, NULL, NULL, 1, 0, NULL);
		cxl_kv_drain(kv, (enum cxl_kv_class) class, KV_STOP_MS);
	}
}

void kv_objects_free(struct cxl_kv *kv)
{
	struct kv_objects *objects = kv->objects;

	if (!objects)
		return;
	while (objects->spaces) {
		struct cxl_kv_ns *ns = objects->spaces;

		objects->spaces = ns->next;
		kv_space_free(ns);
	}
	while (objects->buffers) {
		struct cxl_kv_buffer *buffer = objects->buffers;

		objects->buffers = buffer->next;
		close(buffer->fd);
		free(buffer);
	}
	free_objects(objects, kv_forked(kv));
	kv->objects = NULL;
}
