/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of the library share.
 *
 * Threads: any number of callers, and one helper thread a connection. Callers
 * send their own requests; the helper receives everything, hands answers to the
 * callers that wait, and when the manager is lost finds the next one and gives
 * it the files of every arena.
 *
 * Lock order: objects_lock, arenas_lock, send_lock, lock. An arena's ring_lock is taken alone.
 */
#ifndef CLIENT_INTERNAL_H
#define CLIENT_INTERNAL_H

#include "client/wire.h"

#include <cxl_kv.h>
#include <pthread.h>
#include <stdbool.h>

/* A manager that attaches an arena scans it; with nothing heard for so long it is stuck. */
#define KV_ATTACH_MS 30000

struct kv_call;

struct cxl_kv {
	char *socket_path;
	char *name;
	char *tenant; /* NULL: as the manager knows us */
	enum cxl_kv_loss on_loss;
	uint32_t loss_deadline_ms;
	enum cxl_kv_elem_type elem_type;
	enum cxl_kv_cold_format cold_format;
	void (*log)(void *data, const char *message);
	void *log_data;

	int module; /* /dev/cxl_kv, -1 = there is none */

	/* A byte that is 1 here and, by MADV_WIPEONFORK, 0 in a forked child. */
	const volatile char *is_owner;

	pthread_mutex_t arenas_lock; /* held while arenas are registered again */
	struct cxl_kv_arena *arenas;
	pthread_mutex_t objects_lock; /* held while objects is made; taken before all others */
	struct kv_objects *objects;   /* client/objects.h; NULL until something needs it */

	pthread_mutex_t send_lock; /* held by who sends on the stream or closes it */
	struct kv_stream stream;
	pthread_t helper;
	bool refused; /* and said so: the attempts that follow are silent. Of who attaches */

	pthread_mutex_t lock; /* all below, and number and key of each arena */
	bool connected;
	bool by_module;      /* the manager takes arenas from the module */
	uint32_t connection; /* counts the managers we have had */
	uint64_t next_id;
	struct kv_call *calls; /* waiting */
	uint64_t wake_ns;      /* what a wake takes beside waits and transfer; 0 = none was seen */
	int userfault_device;  /* /dev/userfaultfd as the manager opened it, or -1 */
};

/* Files of an arena, in the order in which they travel. */
enum { KV_MEMORY, KV_USERFAULT, KV_TABLE, KV_RING, KV_NR_FILES };

/* What follows from a geometry. */
struct kv_shape {
	uint32_t nr_heads;
	uint32_t blocks_per_head;
	uint32_t nr_blocks;
	uint64_t bytes;
};

struct cxl_kv_arena {
	struct cxl_kv *kv;
	struct cxl_kv_arena *next;

	struct cxl_kv_geometry geometry;
	struct kv_shape shape;
	uint32_t *layer_window; /* NULL = all full */

	int files[KV_NR_FILES];
	void *base;
	uint64_t *words;
	struct cxl_kv_ring *ring;
	uint32_t nr_ring_entries;

	pthread_mutex_t ring_lock;
	uint32_t ring_head; /* ours; the copy in the ring is only for the consumer */

	uint32_t module_number; /* the module's name for it; 0 = the library keeps it */
	uint32_t number;        /* the current manager's name for it */
	uint64_t key;           /* its name across managers; 0 = not registered yet */
};

/* One request of one caller. Initialise the first part, leave the rest zero. */
struct kv_call {
	struct json_object *request; /* "op" and its fields; consumed */
	struct cxl_kv_arena *arena;  /* "arena" gets its number each time it is sent; may be NULL */
	const int *files;
	size_t nr_files;
	uint32_t timeout_ms; /* how long the manager may take */
	bool never_waits;    /* ends with -ENOTCONN when the manager is lost */
	bool strict_timeout; /* ends at timeout_ms even where no manager came meanwhile */
	bool takes_file;     /* the caller closes what came with the answer */
	bool takes_refusal;  /* the caller gets the answer with an error in it, too */

	uint32_t nr_sent;
	uint32_t connection; /* that answered */
	uint32_t retry_ms;   /* of the error: when to ask again; 0 = it did not say */

	enum { KV_UNSENT, KV_SENT, KV_ANSWERED } state;
	uint64_t id;
	struct json_object *answer;
	int file; /* that came with it; -1 = none */
	pthread_cond_t changed;
	struct kv_call *next;
};

/* connection.c */
void kv_log(const struct cxl_kv *kv, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool kv_forked(const struct cxl_kv *kv)
{
	return !*kv->is_owner;
}

/* attach.c: connects, says hello and registers the arenas; the helper's part of a new connection.
 */
int kv_attach(struct cxl_kv *kv);

/* helper.c */
int kv_helper_start(struct cxl_kv *kv);
void kv_helper_stop(struct cxl_kv *kv);

/*
 * call.c: sends a request, waits for the answer, sends it again to the next
 * manager where the first was lost. 0, the error that the manager answered, or
 * -ENOTCONN, -ETIMEDOUT, -EPROTO. @answer may be NULL; the caller puts it.
 */
int kv_call(struct cxl_kv *kv, struct kv_call *call, struct json_object **answer);
struct json_object *kv_request(const char *op);
/* Whether it is the connection of now. */
bool kv_is_connection(struct cxl_kv *kv, uint32_t connection);
/* 0 or the error an answer holds; -EPROTO where it is no answer. */
int kv_answer_error(struct json_object *answer);

/* userfault.c: a userfaultfd of this process with the features that spilling needs, or -errno. */
int kv_userfault_create(struct cxl_kv *kv);
int kv_userfault_register(int fd, void *base, uint64_t bytes);

/* module.c: the device, or -1; then registers the arena there and maps its ring, and the end of it.
 */
int kv_module_open(void);
int kv_module_keep(struct cxl_kv_arena *arena);
void kv_module_let_go(const struct cxl_kv_arena *arena);

/* geometry.c: 0 or -EINVAL. */
int kv_geometry_check(const struct cxl_kv_geometry *geometry, struct kv_shape *shape);

/* registration.c: the register request of an arena, and what its answer says. */
struct json_object *kv_register_request(const struct cxl_kv_arena *arena);
int kv_register_answer(struct json_object *answer, uint32_t *number, uint64_t *key);

static inline uint64_t kv_ring_bytes(const struct cxl_kv_arena *arena)
{
	return CXL_KV_RING_ENTRIES_OFFSET +
	       (uint64_t)arena->nr_ring_entries * sizeof(struct cxl_kv_hint);
}

/* What travels with the request above: nothing where the module keeps the files. */
static inline size_t kv_register_nr_files(const struct cxl_kv_arena *arena)
{
	return arena->module_number ? 0 : KV_NR_FILES;
}

/* blocks.c */
int kv_check_ranges(const struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr);
static inline uint32_t kv_block_index(const struct cxl_kv_arena *arena, uint32_t slot,
				      uint32_t head, uint32_t block)
{
	return (slot * arena->shape.nr_heads + head) * arena->shape.blocks_per_head + block;
}
static inline uint64_t kv_word(const struct cxl_kv_arena *arena, uint32_t index)
{
	return __atomic_load_n(&arena->words[index], __ATOMIC_ACQUIRE);
}

/* Sets of states, to choose blocks by. */
#define KV_STATES(state) (1u << (state))
#define KV_STATES_ANY 0xffu
#define KV_STATES_UNMADE (KV_STATES(CXL_KV_EMPTY) | KV_STATES(CXL_KV_LOST))
#define KV_STATES_HERE (KV_STATES(CXL_KV_RESIDENT) | KV_STATES(CXL_KV_SPILLING))
#define KV_STATES_ABSENT (KV_STATES_ANY & ~KV_STATES_UNMADE & ~KV_STATES_HERE)

/*
 * Asks the manager for @op over the part of each range that spans all its blocks
 * in one of @states. Without such a block it asks nothing and returns 0.
 */
int kv_call_states(struct cxl_kv_arena *arena, const char *op, const struct cxl_kv_range *ranges,
		   size_t nr, unsigned int states, uint32_t timeout_ms);

#endif
