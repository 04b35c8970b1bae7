/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the tiers of this host give, measured: latency and bandwidth of a node,
 * the rate at which pages move between two, and a drive below a folder. Each
 * call takes about `seconds` per figure and gives back what it took.
 */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>

namespace cxlkv {

struct NodeFigures {
	double read_ns = 0;   /* dependent loads, random over the buffer; TLB misses included */
	double read_MBps = 0; /* all CPUs that this process may use, sequential */
	double write_MBps = 0;
	double copy_MBps = 0; /* bytes copied; each is read once and written once */
};

struct DriveFigures {
	double write_MBps = 0; /* O_DIRECT, extents of 1 MiB, 16 in flight */
	double read_MBps = 0;
	uint64_t block_read_p50_ns = 0; /* one block at a time, random */
	uint64_t block_read_p99_ns = 0;
};

/* ENOMEM where the node has no room for a buffer of so many bytes. */
Result<NodeFigures> measure_node(int node, uint64_t bytes, double seconds);

/* move_pages(2) of a buffer there and back; MB/s of one direction, from -> to. */
Result<double> measure_move(int from, int to, uint64_t bytes, double seconds);

/* In a file without a name below the folder: nothing stays behind, whatever happens. */
Result<DriveFigures> measure_drive(const std::string &folder, uint64_t file_bytes,
				   uint32_t block_bytes, double seconds);

} // namespace cxlkv
