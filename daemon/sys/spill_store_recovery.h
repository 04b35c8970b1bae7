/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rebuilds segments and index from what lies on the device. Believes nothing but intact headers. */
#pragma once

#include "base/result.h"
#include "sys/spill_store_file.h"
#include "sys/spill_store_index.h"
#include "sys/spill_store_log.h"

namespace cxlkv {

struct Recovered {
	uint64_t seq = 0, version = 0; /* highest seen */
	uint64_t nr_tombstones = 0;
};

/* The newest record of each block wins, unless a tombstone is newer. */
Result<Recovered> recover(const StoreFile &file, const disk::Superblock &super, SegmentTable &segments,
			  StoreIndex &index);

} // namespace cxlkv
