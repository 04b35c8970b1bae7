/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files about keyed objects share: the rings of the connection, the
 * jobs in flight, buffers and namespaces. Made when the first of them is needed.
 *
 * Lock order: kv->arenas_lock (which also guards the lists of buffers and
 * namespaces), then a lane's lock. call_lock is taken before a lane's.
 */
#ifndef CLIENT_OBJECTS_H
#define CLIENT_OBJECTS_H

#include "client/internal.h"

#include <cxl_kv_shared.h>

/* The staging pool: memory of the library that jobs are copied through, a part for each class. */
#define KV_STAGING_BYTES (8u << 20)
#define KV_STAGING_PAGE 4096u
#define KV_STAGING_PAGES (KV_STAGING_BYTES / KV_STAGING_PAGE)
#define KV_STAGING_BUFFER 0 /* its number; registered buffers follow */
#define KV_NR_STAGED 2      /* classes that have one: CXL_KV_LOAD, CXL_KV_STORE */

/* One transfer of a job in flight. */
struct kv_part {
	int32_t result;
	uint32_t staging; /* first byte in the class's part of the pool, when bytes is not 0 */
	uint32_t bytes;
	uint32_t nr_iov;
	struct iovec *iov; /* where staged bytes go; in the job's own memory */
};

struct kv_job {
	uint64_t id, user_data;
	struct kv_job *next;
	int32_t *results; /* the caller's */
	uint32_t nr, nr_left;
	bool abandoned; /* nobody waits for it */
	bool done;      /* of calls, which are not queued */
	struct kv_part parts[];
};

/* One class, or the calls. */
struct kv_lane {
	pthread_mutex_t lock; /* of all of it */
	struct cxl_kv_lane *shared;
	int event_fd;
	uint32_t item_head, result_tail, nr_polls;
	uint32_t nr_free;
	uint16_t free_ids[CXL_KV_LANE_ENTRIES];
	struct {
		struct kv_job *job;
		uint32_t part;
	} out[CXL_KV_LANE_ENTRIES];
	struct kv_job *first, **last; /* ended, in order */
	uint32_t nr_jobs;             /* in flight */
	char *staging;                /* KV_STAGING_BYTES, or NULL */
	uint32_t staging_cursor;
	bool staging_taken[KV_STAGING_PAGES];
};

struct cxl_kv_buffer {
	struct cxl_kv *kv;
	struct cxl_kv_buffer *next;
	int fd;
	uint64_t offset; /* of at, in the file */
	char *at;
	size_t bytes;
	uint32_t number;
};

struct kv_index {
	struct cxl_kv_index_header *header;
	uint64_t bytes;
	struct kv_index *retired; /* of managers before: somebody may still read it */
};

struct cxl_kv_ns {
	struct cxl_kv *kv;
	struct cxl_kv_ns *next;
	char *request;          /* its text: sent to every manager */
	struct kv_index *index; /* NULL: no manager, or it refused. Atomic */
	struct kv_index *retired;
	uint32_t number; /* the current manager's */
	int error;       /* of the last attempt */
	pthread_mutex_t event_lock;
	uint64_t next_event; /* of cxl_kv_events(), under event_lock */
};

struct kv_objects {
	struct kv_lane lanes[CXL_KV_NR_LANES];
	int doorbell;
	int memory; /* of the rings, renewed with every manager; -1 = none */
	void *memory_at;
	int staging;
	void *staging_at;
	bool attached; /* to the manager of now; written under each lane's lock in turn. Atomic */
	uint64_t next_job;
	uint64_t nr_lookups, nr_hits; /* atomic; told to the manager with the next items */
	uint32_t next_buffer;
	struct cxl_kv_buffer *buffers;
	struct cxl_kv_ns *spaces;
	pthread_mutex_t call_lock;
	bool unlocked_told; /* that the staging pool may be swapped */
};

/* objects.c */
/* What there is, or a new one that is attached. */
int kv_objects_get(struct cxl_kv *kv, struct kv_objects **out);
/* Part of a new connection: rings, buffers and namespaces again. */
int kv_objects_attach(struct cxl_kv *kv);
/* The manager is gone: every job ends with -ENOTCONN. */
void kv_objects_lost(struct cxl_kv *kv);
/* Cancels what is in flight and waits for its end: nothing is copied after that. */
void kv_objects_stop(struct cxl_kv *kv);
void kv_objects_free(struct cxl_kv *kv);

/* lanes.c */
/* Under the lane's lock: hands results of the manager to their jobs. */
void kv_lane_reap(struct kv_lane *lane);
/* Under the lane's lock, with nr_free checked: the next item to fill in, for that part. */
struct cxl_kv_item *kv_lane_item(struct kv_lane *lane, struct kv_job *job, uint32_t part);
/* Under the lane's lock: shows the manager the items of one job. */
void kv_lane_send(struct kv_objects *objects, struct kv_lane *lane);
/* Under the lane's lock: the item's result, from wherever. */
void kv_lane_end_item(struct kv_lane *lane, uint32_t id, int32_t result);

/* job.c */
struct kv_job *kv_job_new(size_t nr, size_t nr_iov);

/* keys.c: one item for each key, with its value where there are, and waits for them. Like the calls
 * of cxl_kv_store.h. */
int kv_item_call(struct cxl_kv *kv, const struct cxl_kv_item *like, const struct cxl_kv_key *keys,
		 const uint64_t *values, size_t nr, uint32_t timeout_ms, int32_t *results);

/* staging.c, under the lane's lock: -EAGAIN full, -E2BIG larger than it is. */
int kv_staging_take(struct kv_lane *lane, uint64_t bytes, uint32_t *offset);
void kv_staging_give(struct kv_lane *lane, uint32_t offset, uint32_t bytes);

/* buffer.c: the registered buffer that holds the bytes, under arenas_lock; or NULL. */
const struct cxl_kv_buffer *kv_buffer_find(const struct kv_objects *objects, const void *at,
					   size_t bytes);
struct json_object *kv_buffer_request(uint32_t number, uint64_t bytes);

/* space.c: a request about the namespace; NULL without memory, which kv_call() answers with
 * -ENOMEM. */
struct json_object *kv_space_request(const struct cxl_kv_ns *ns, const char *op);
/* Takes the manager's answer and the file that came with it, which it closes. */
int kv_space_answer(struct cxl_kv_ns *ns, struct json_object *answer, int file);
void kv_space_lost(struct cxl_kv_ns *ns);
void kv_space_free(struct cxl_kv_ns *ns);

/* attach.c: a request and its answer while nobody else uses the stream. */
int kv_exchange(struct cxl_kv *kv, struct json_object *request, const int *files, size_t nr_files,
		struct json_object **answer);

#endif
