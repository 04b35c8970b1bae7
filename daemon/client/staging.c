// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The staging pool: pages that jobs are copied through where the caller's memory
 * is not registered. A piece belongs to one transfer from its submission until
 * its result was taken, so nothing writes to it while it is still read.
 */
#include "client/objects.h"

#include <errno.h>
#include <string.h>

static uint32_t pages_of(uint64_t bytes)
{
	return (uint32_t)((bytes + KV_STAGING_PAGE - 1) / KV_STAGING_PAGE);
}

/* The first of nr free pages in a row at or after @from, KV_STAGING_PAGES where there is none. */
static uint32_t find_run(const struct kv_lane *lane, uint32_t from, uint32_t nr)
{
	uint32_t run = 0;

	for (uint32_t page = from; page < KV_STAGING_PAGES; page++) {
		run = lane->staging_taken[page] ? 0 : run + 1;
		if (run == nr)
			return page + 1 - nr;
	}
	return KV_STAGING_PAGES;
}

int kv_staging_take(struct kv_lane *lane, uint64_t bytes, uint32_t *offset)
{
	uint32_t nr = pages_of(bytes);
	uint32_t page;

	if (bytes > KV_STAGING_BYTES)
		return -E2BIG;
	page = find_run(lane, lane->staging_cursor, nr);
	if (page == KV_STAGING_PAGES)
		page = find_run(lane, 0, nr);
	if (page == KV_STAGING_PAGES)
		return -EAGAIN;
	memset(&lane->staging_taken[page], true, nr);
	lane->staging_cursor = page + nr;
	*offset = page * KV_STAGING_PAGE;
	return 0;
}

void kv_staging_give(struct kv_lane *lane, uint32_t offset, uint32_t bytes)
{
	memset(&lane->staging_taken[offset / KV_STAGING_PAGE], false, pages_of(bytes));
}
