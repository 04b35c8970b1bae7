// SPDX-License-Identifier: GPL-2.0
/*
 * Latency and bandwidth of a node by ACPI's Heterogeneous Memory Attribute
 * Table, 5.2.28 of ACPI 6.5. The kernel has read it too, but hands it to user
 * space only.
 */
#include <linux/acpi.h>
#include <linux/math.h>
#include <linux/nodemask.h>

#include "internal.h"
#include "node.h"

/* The first revision whose entries are in units of picoseconds and MB/s. */
#define HMAT_REVISION 2
#define NOT_REACHABLE 0xffff

/* Lower latency and higher bandwidth win: of the nearest CPU. */
static void keep_lower(unsigned int *kept, u64 value)
{
	if (!*kept || value < *kept)
		*kept = min_t(u64, value, UINT_MAX);
}

static void keep_higher(unsigned int *kept, u64 value)
{
	*kept = max_t(u64, *kept, min_t(u64, value, UINT_MAX));
}

static void take_entry(u8 data_type, u64 value, struct access_coordinate *perf)
{
	u64 ns = DIV_ROUND_UP_ULL(value, 1000);

	switch (data_type) {
	case ACPI_HMAT_ACCESS_LATENCY:
		keep_lower(&perf->read_latency, ns);
		keep_lower(&perf->write_latency, ns);
		break;
	case ACPI_HMAT_READ_LATENCY:
		keep_lower(&perf->read_latency, ns);
		break;
	case ACPI_HMAT_WRITE_LATENCY:
		keep_lower(&perf->write_latency, ns);
		break;
	case ACPI_HMAT_ACCESS_BANDWIDTH:
		keep_higher(&perf->read_bandwidth, value);
		keep_higher(&perf->write_bandwidth, value);
		break;
	case ACPI_HMAT_READ_BANDWIDTH:
		keep_higher(&perf->read_bandwidth, value);
		break;
	case ACPI_HMAT_WRITE_BANDWIDTH:
		keep_higher(&perf->write_bandwidth, value);
		break;
	}
}

static bool has_cpus(u32 pxm)
{
	int nid = pxm_to_node(pxm);

	return nid >= 0 && nid < nr_node_ids && node_state(nid, N_CPU);
}

/* A matrix of initiators and targets for one kind of value. It may be cut short or lie. */
static void take_matrix(const struct acpi_hmat_locality *loc, int nid,
			struct access_coordinate *perf)
{
	u64 nr_from = loc->number_of_initiator_Pds, nr_to = loc->number_of_target_Pds;
	const u32 *from = (const u32 *)(loc + 1), *to = from + nr_from;
	const u16 *entries = (const u16 *)(to + nr_to);
	u64 i, k;

	if (loc->header.length < sizeof(*loc) || nr_from > U16_MAX || nr_to > U16_MAX ||
	    loc->header.length < sizeof(*loc) + 4 * (nr_from + nr_to) + 2 * nr_from * nr_to)
		return;
	if ((loc->flags & ACPI_HMAT_MEMORY_HIERARCHY) != ACPI_HMAT_MEMORY)
		return;
	for (k = 0; k < nr_to; k++) {
		if (pxm_to_node(to[k]) != nid)
			continue;
		for (i = 0; i < nr_from; i++) {
			u16 entry = entries[i * nr_to + k];

			if (entry && entry != NOT_REACHABLE && has_cpus(from[i]))
				take_entry(loc->data_type, entry * loc->entry_base_unit, perf);
		}
	}
}

bool cxl_kv_hmat_perf(int nid, struct access_coordinate *perf)
{
	const struct acpi_hmat_structure *at;
	struct acpi_table_header *table;
	const void *end;

	memset(perf, 0, sizeof(*perf));
	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_HMAT, 0, &table)))
		return false;
	end = (const void *)table + table->length;
	at = (const void *)table + sizeof(struct acpi_table_hmat);
	while (table->revision >= HMAT_REVISION && (const void *)(at + 1) <= end &&
	       at->length >= sizeof(*at) && (const void *)at + at->length <= end) {
		if (at->type == ACPI_HMAT_TYPE_LOCALITY)
			take_matrix((const struct acpi_hmat_locality *)at, nid, perf);
		at = (const void *)at + at->length;
	}
	acpi_put_table(table);
	return perf->read_latency || perf->read_bandwidth;
}
