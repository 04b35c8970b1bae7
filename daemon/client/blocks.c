// SPDX-License-Identifier: LGPL-2.1-or-later
/* Ranges of blocks: are they in the arena, and asking the manager for something over them. */
#include "client/internal.h"

#include <errno.h>

int kv_check_ranges(const struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr)
{
	if (kv_forked(arena->kv))
		return -EPERM;
	if (nr > CXL_KV_MAX_RANGES)
		return -E2BIG;
	if (nr && !ranges)
		return -EINVAL;
	for (size_t i = 0; i < nr; i++) {
		const struct cxl_kv_range *range = &ranges[i];

		if (range->slot >= arena->geometry.nr_slots ||
		    range->head >= arena->shape.nr_heads ||
		    range->block >= arena->shape.blocks_per_head || !range->nr_blocks ||
		    range->nr_blocks > arena->shape.blocks_per_head - range->block)
			return -EINVAL;
	}
	return 0;
}

/* Adjacent blocks of the arena; nr = 0 is none. */
struct run {
	uint32_t first;
	uint32_t nr;
};

/* The smallest part of the range that has all its blocks in one of the states. */
static struct run span(const struct cxl_kv_arena *arena, const struct cxl_kv_range *range,
		       unsigned int states)
{
	uint32_t begin = kv_block_index(arena, range->slot, range->head, range->block);
	uint32_t end = begin + range->nr_blocks;
	struct run run;

	while (begin < end && !(states & KV_STATES(kv_word(arena, begin) & CXL_KV_WORD_STATE_MASK)))
		begin++;
	while (begin < end &&
	       !(states & KV_STATES(kv_word(arena, end - 1) & CXL_KV_WORD_STATE_MASK)))
		end--;
	run.first = begin;
	run.nr = end - begin;
	return run;
}

static int add_run(struct json_object *list, struct run run)
{
	struct json_object *pair;

	if (!run.nr)
		return 0;
	pair = json_object_new_array();
	if (!pair || json_object_array_add(pair, json_object_new_int64(run.first)) ||
	    json_object_array_add(pair, json_object_new_int64(run.nr)) ||
	    json_object_array_add(list, pair)) {
		json_object_put(pair);
		return -ENOMEM;
	}
	return 0;
}

/* Runs that meet become one. */
static int add_runs(struct json_object *list, const struct cxl_kv_arena *arena,
		    const struct cxl_kv_range *ranges, size_t nr, unsigned int states)
{
	struct run last = {};

	for (size_t i = 0; i < nr; i++) {
		struct run run = span(arena, &ranges[i], states);

		if (!run.nr)
			continue;
		if (last.nr && run.first == last.first + last.nr) {
			last.nr += run.nr;
			continue;
		}
		if (add_run(list, last))
			return -ENOMEM;
		last = run;
	}
	return add_run(list, last);
}

/* A request over the blocks in one of the states; *request is NULL where there are none. */
static int ranges_request(const struct cxl_kv_arena *arena, const char *op,
			  const struct cxl_kv_range *ranges, size_t nr, unsigned int states,
			  struct json_object **request)
{
	struct json_object *list = json_object_new_array();
	int rc = list ? add_runs(list, arena, ranges, nr, states) : -ENOMEM;

	*request = NULL;
	if (rc || !json_object_array_length(list)) {
		json_object_put(list);
		return rc;
	}
	*request = kv_request(op);
	rc = kv_json_add(*request, "ranges", list);
	if (rc)
		json_object_put(*request);
	return rc;
}

int kv_call_states(struct cxl_kv_arena *arena, const char *op, const struct cxl_kv_range *ranges,
		   size_t nr, unsigned int states, uint32_t timeout_ms)
{
	struct kv_call call = {.arena = arena, .timeout_ms = timeout_ms};
	int rc = ranges_request(arena, op, ranges, nr, states, &call.request);

	if (rc || !call.request)
		return rc;
	rc = kv_json_add(call.request, "deadline_ms", json_object_new_int64(timeout_ms));
	if (rc) {
		json_object_put(call.request);
		return rc;
	}
	return kv_call(arena->kv, &call, NULL);
}

int cxl_kv_make(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr,
		uint32_t timeout_ms)
{
	return kv_check_ranges(arena, ranges, nr)
		       ?: kv_call_states(arena, "make", ranges, nr, KV_STATES_UNMADE, timeout_ms);
}

int cxl_kv_drop(struct cxl_kv_arena *arena, const struct cxl_kv_range *ranges, size_t nr)
{
	struct kv_call call = {.arena = arena};
	int rc = kv_check_ranges(arena, ranges, nr)
			 ?: ranges_request(arena, "drop", ranges, nr, KV_STATES_ANY, &call.request);

	if (rc || !call.request)
		return rc;
	return kv_call(arena->kv, &call, NULL);
}
