/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Segments and index as they were: the newest checkpoint, then the log that was
 * written after it. Only reads. Believes nothing but intact headers.
 */
#pragma once

#include "sys/spill_store_checkpoint.h"
#include "sys/spill_store_index.h"

namespace cxlkv {

struct Recovered {
	SegmentTable table;
	StoreIndex index;
	LogPosition position;
	std::vector<disk::Tombstone> tombstones; /* behind the checkpoint */
	uint64_t nr_cut = 0;                     /* blocks lost because the file was truncated */
	uint64_t nr_replayed = 0;                /* extents found behind the checkpoint */
};

/*
 * Of a store that shall have nr_segments, or has more of them, at most nr_there.
 * The newest record of each block wins, unless a tombstone is newer. EBADMSG:
 * something that had been written is missing, and as nobody knows which blocks it
 * made obsolete, none can be trusted.
 */
Result<Recovered> recover(const StoreFile &file, const disk::Superblock &super,
			  uint32_t nr_segments, uint32_t nr_there);

} // namespace cxlkv
