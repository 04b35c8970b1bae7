// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * An arena's files and mappings, and its registration with the manager. The
 * userfaultfd is kept open as long as the mapping: when the last one closes,
 * blocks that are out of memory would read as zeros.
 */
#include "client/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Room for one hint for each block of a session: what a step may say. */
#define MIN_RING_ENTRIES 1024

static uint64_t table_bytes(const struct cxl_kv_arena *arena)
{
	return (uint64_t)arena->shape.nr_blocks * sizeof(*arena->words);
}

static uint32_t choose_ring_entries(const struct kv_shape *shape)
{
	uint64_t blocks_per_slot = (uint64_t)shape->nr_heads * shape->blocks_per_head;
	uint32_t nr = MIN_RING_ENTRIES;

	while (nr < CXL_KV_RING_MAX_ENTRIES && nr < blocks_per_slot)
		nr *= 2;
	return nr;
}

/* A memfd whose size stays, mapped where a forked child does not get it. */
static int map_sealed(const char *name, uint64_t bytes, int *file, void **mapping)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *at;

	if (fd < 0)
		return -errno;
	*file = fd;
	if (ftruncate(fd, (off_t)bytes))
		return -errno;
	/* Not sealed against writing: that would forbid punching holes too. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	*mapping = at;
	return madvise(at, bytes, MADV_DONTFORK) ? -errno : 0;
}

static int make_memory(struct cxl_kv_arena *arena)
{
	uint64_t bytes = arena->shape.bytes;
	int rc = map_sealed("cxl_kv_memory", bytes, &arena->files[KV_MEMORY], &arena->base);

	if (rc)
		return rc;
	/* Pages go one by one; and a core dump would bring all of them back. */
	if (madvise(arena->base, bytes, MADV_NOHUGEPAGE) && errno != EINVAL)
		return -errno;
	if (madvise(arena->base, bytes, MADV_DONTDUMP))
		return -errno;
	rc = kv_userfault_create(arena->kv);
	if (rc < 0)
		return rc;
	arena->files[KV_USERFAULT] = rc;
	return kv_userfault_register(rc, arena->base, bytes);
}

static int make_table(struct cxl_kv_arena *arena)
{
	void *table;
	int rc = map_sealed("cxl_kv_table", table_bytes(arena), &arena->files[KV_TABLE], &table);

	arena->words = rc ? NULL : table;
	return rc;
}

static int make_ring(struct cxl_kv_arena *arena)
{
	void *ring;
	int rc = map_sealed("cxl_kv_ring", kv_ring_bytes(arena), &arena->files[KV_RING], &ring);

	if (rc)
		return rc;
	arena->ring = ring;
	arena->ring->nr_entries = arena->nr_ring_entries;
	return 0;
}

/* Who keeps the files while there is no manager: the module, where the manager uses it too. */
static int find_keeper(struct cxl_kv_arena *arena)
{
	struct cxl_kv *kv = arena->kv;
	bool by_module;

	pthread_mutex_lock(&kv->lock);
	by_module = kv->module >= 0 && kv->by_module;
	pthread_mutex_unlock(&kv->lock);
	return by_module ? kv_module_keep(arena) : make_ring(arena);
}

static void unmap(void *at, uint64_t bytes)
{
	if (at)
		munmap(at, bytes);
}

static void free_arena(struct cxl_kv_arena *arena)
{
	/* In a forked child the mappings are not there, and their place may be another's. */
	if (!kv_forked(arena->kv)) {
		unmap(arena->ring, kv_ring_bytes(arena));
		kv_module_let_go(arena);
		unmap(arena->words, table_bytes(arena));
		unmap(arena->base, arena->shape.bytes);
	}
	for (int i = 0; i < KV_NR_FILES; i++) {
		if (arena->files[i] >= 0)
			close(arena->files[i]);
	}
	free(arena->layer_window);
	free(arena);
}

/* Registers with the manager of now, and puts the arena where the next one finds it. */
static int register_arena(struct cxl_kv_arena *arena)
{
	struct cxl_kv *kv = arena->kv;
	bool listed = false;

	while (!listed) {
		struct json_object *answer;
		struct kv_call call = {
			.request = kv_register_request(arena),
			.files = arena->files,
			.nr_files = kv_register_nr_files(arena),
			.timeout_ms = KV_ATTACH_MS,
		};
		int rc = kv_call(kv, &call, &answer);

		if (rc)
			return rc;
		rc = kv_register_answer(answer, &arena->number, &arena->key);
		json_object_put(answer);
		if (rc)
			return rc;
		/* A manager lost since then took the registration with it: once more, by key. */
		pthread_mutex_lock(&kv->arenas_lock);
		listed = kv_is_connection(kv, call.connection);
		if (listed) {
			arena->next = kv->arenas;
			kv->arenas = arena;
		}
		pthread_mutex_unlock(&kv->arenas_lock);
	}
	return 0;
}

static struct cxl_kv_arena *new_arena(struct cxl_kv *kv, const struct cxl_kv_geometry *geometry,
				      const struct kv_shape *shape, const uint32_t *layer_window)
{
	struct cxl_kv_arena *arena = calloc(1, sizeof(*arena));

	if (!arena)
		return NULL;
	arena->kv = kv;
	arena->geometry = *geometry;
	arena->shape = *shape;
	arena->nr_ring_entries = choose_ring_entries(shape);
	pthread_mutex_init(&arena->ring_lock, NULL);
	for (int i = 0; i < KV_NR_FILES; i++)
		arena->files[i] = -1;
	if (layer_window) {
		size_t bytes = geometry->nr_layers * sizeof(*layer_window);

		arena->layer_window = malloc(bytes);
		if (!arena->layer_window) {
			free(arena);
			return NULL;
		}
		memcpy(arena->layer_window, layer_window, bytes);
	}
	return arena;
}

int cxl_kv_arena_create(struct cxl_kv *kv, const struct cxl_kv_geometry *geometry,
			const uint32_t *layer_window, struct cxl_kv_arena **out)
{
	struct cxl_kv_arena *arena;
	struct kv_shape shape;
	int rc;

	if (kv_forked(kv))
		return -EPERM;
	if (!geometry || !out)
		return -EINVAL;
	rc = kv_geometry_check(geometry, &shape);
	if (rc)
		return rc;
	arena = new_arena(kv, geometry, &shape, layer_window);
	if (!arena)
		return -ENOMEM;
	rc = make_memory(arena) ?: make_table(arena) ?: find_keeper(arena) ?: register_arena(arena);
	if (rc) {
		free_arena(arena);
		return rc;
	}
	*out = arena;
	return 0;
}

static void forget_arena(struct cxl_kv_arena *arena)
{
	struct cxl_kv_arena **at = &arena->kv->arenas;

	while (*at != arena)
		at = &(*at)->next;
	*at = arena->next;
}

void cxl_kv_arena_destroy(struct cxl_kv_arena *arena)
{
	struct kv_call call = {.never_waits = true};

	if (!arena)
		return;
	if (kv_forked(arena->kv)) {
		forget_arena(arena);
		free_arena(arena);
		return;
	}
	pthread_mutex_lock(&arena->kv->arenas_lock);
	forget_arena(arena);
	pthread_mutex_unlock(&arena->kv->arenas_lock);
	/* Waits, so that the memory is given back when we return. A manager that is gone has done
	 * it. */
	call.request = kv_request("unregister");
	call.arena = arena;
	kv_call(arena->kv, &call, NULL);
	free_arena(arena);
}

void *cxl_kv_arena_base(const struct cxl_kv_arena *arena)
{
	return arena->base;
}

static bool in_range(const struct cxl_kv_arena *arena, uint32_t slot, uint32_t head, uint32_t block)
{
	return slot < arena->geometry.nr_slots && head < arena->shape.nr_heads &&
	       block < arena->shape.blocks_per_head && !kv_forked(arena->kv);
}

void *cxl_kv_block(const struct cxl_kv_arena *arena, uint32_t slot, uint32_t head, uint32_t block)
{
	if (!in_range(arena, slot, head, block))
		return NULL;
	return (char *)arena->base +
	       (uint64_t)kv_block_index(arena, slot, head, block) * arena->geometry.block_bytes;
}

uint64_t cxl_kv_block_word(const struct cxl_kv_arena *arena, uint32_t slot, uint32_t head,
			   uint32_t block)
{
	if (!in_range(arena, slot, head, block))
		return 0;
	return kv_word(arena, kv_block_index(arena, slot, head, block));
}
