/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A checkpoint: the segment table and the counters as they were at one moment,
 * and its form on the device. Recovery starts from the newest one.
 */
#pragma once

#include "base/result.h"
#include "sys/spill_store_file.h"
#include "sys/spill_store_log.h"

#include <span>
#include <vector>

namespace cxlkv {

struct LogPosition {
	uint64_t seq = 0;             /* last extent that the checkpoint knows */
	uint64_t version = 0;         /* last contents */
	uint64_t checkpoint = 0;      /* its number */
	uint64_t in_flight_bytes = 0; /* at most so much of the log was being written at one time */
};

/* Header page and payload, to be written one behind the other. */
struct EncodedCheckpoint {
	disk::CheckpointHeader header;
	std::vector<std::byte> payload; /* whole pages */
};
EncodedCheckpoint encode_checkpoint(const disk::Superblock &super, const SegmentTable &table,
				    const LogPosition &position);

/* Bytes that encode_checkpoint() would make, an upper bound. */
uint64_t checkpoint_bytes(const SegmentTable &table);

/*
 * Untrusted input: EBADMSG and what is wrong. The table has nr_segments, or as
 * many as the checkpoint knows, but no more than nr_there, which is how many the
 * file has: what lay behind (it was truncated) is left out, and nr_cut counts
 * its live blocks.
 */
struct DecodedCheckpoint {
	LogPosition position;
	SegmentTable table;
	uint64_t nr_cut = 0;
};
Result<DecodedCheckpoint> decode_checkpoint(const disk::Superblock &super,
					    const disk::CheckpointHeader &header,
					    std::span<const std::byte> payload,
					    uint32_t nr_segments, uint32_t nr_there);

/* The newest checkpoint of the file, from whichever copy is whole. */
Result<DecodedCheckpoint> load_checkpoint(const StoreFile &file, const disk::Superblock &super,
					  uint32_t nr_segments, uint32_t nr_there);

/* Whether that copy of the checkpoint can be read and its checksums are right. */
bool checkpoint_copy_is_whole(const StoreFile &file, const disk::Superblock &super, uint64_t number,
			      uint32_t copy);

} // namespace cxlkv
