/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An engine's use of keyed objects: look a prefix up, load what is there, compute
 * and store the rest. Run it twice: the second time everything is found.
 * `make` builds it as build/examples/store; against the installed library:
 *
 *	gcc store.c $(pkg-config --cflags --libs cxl_kv) -o store
 */
#include <cxl_kv.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define NR_BLOCKS 8
#define BLOCK_BYTES 65536

static unsigned char blocks[NR_BLOCKS][BLOCK_BYTES];

/* One job over blocks first to last, from submission to completion. */
static int run(struct cxl_kv *kv, struct cxl_kv_ns *ns, enum cxl_kv_class class,
	       const struct cxl_kv_key *keys, size_t first)
{
	struct cxl_kv_transfer transfers[NR_BLOCKS];
	struct iovec memory[NR_BLOCKS];
	struct cxl_kv_job job = {
		.size = sizeof(job), .deadline_ms = 5000, .priority = 35, .transfers = transfers};
	struct cxl_kv_completion done;
	struct pollfd event = {.fd = cxl_kv_event_fd(kv, class), .events = POLLIN};
	size_t end = class == CXL_KV_LOAD ? first : NR_BLOCKS;
	eventfd_t count;
	int rc;

	for (size_t i = class == CXL_KV_LOAD ? 0 : first; i < end; i++) {
		memory[job.nr] = (struct iovec){blocks[i], BLOCK_BYTES};
		transfers[job.nr] = (struct cxl_kv_transfer){keys[i], 0, &memory[job.nr], 1};
		job.nr++;
	}
	rc = class == CXL_KV_LOAD ? cxl_kv_submit_load(ns, &job, NULL)
				  : cxl_kv_submit_store(ns, &job, NULL);
	while (!rc && !cxl_kv_poll(kv, class, &done, 1)) {
		poll(&event, 1, -1);
		eventfd_read(event.fd, &count);
	}
	return rc ? rc : done.error;
}

int main(void)
{
	const struct cxl_kv_options options = {.size = sizeof(options)};
	struct cxl_kv_identity id = {.size = sizeof(id), .nr_layers = 1, .model = "example"};
	const struct cxl_kv_group group = {0, BLOCK_BYTES};
	const struct cxl_kv_ns_options ns_options = {
		sizeof(ns_options), 0, "example", &id, &group, 1};
	struct cxl_kv_key keys[NR_BLOCKS] = {};
	struct cxl_kv_ns *ns = NULL;
	struct cxl_kv *kv = NULL;
	char field[32] = "";
	size_t nr_found;
	int rc = cxl_kv_open(&options, &kv);

	if (!rc)
		rc = cxl_kv_ns_open(kv, &ns_options, field, sizeof(field), &ns);
	for (int i = 0; i < NR_BLOCKS; i++) /* an engine hashes the tokens up to the block's end */
		keys[i].bytes[0] = (unsigned char)i;
	nr_found = rc ? 0 : cxl_kv_lookup_prefix(ns, keys, NR_BLOCKS);
	if (!rc && nr_found)
		rc = run(kv, ns, CXL_KV_LOAD, keys, nr_found);
	for (size_t i = nr_found; i < NR_BLOCKS; i++) /* compute */
		memset(blocks[i], (int)i + 1, BLOCK_BYTES);
	if (!rc && nr_found < NR_BLOCKS)
		rc = run(kv, ns, CXL_KV_STORE, keys, nr_found);
	printf("%zu of %d blocks were found: %s %s\n", nr_found, NR_BLOCKS, strerror(-rc), field);
	cxl_kv_ns_close(ns);
	cxl_kv_close(kv);
	return rc != 0;
}
