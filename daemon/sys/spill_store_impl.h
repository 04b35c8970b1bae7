/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Insides of SpillStore, shared by the files that implement it. */
#pragma once

#include "base/log.h"
#include "sys/spill_store.h"
#include "sys/spill_store_file.h"
#include "sys/spill_store_index.h"
#include "sys/spill_store_log.h"
#include "sys/uring.h"

#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace cxlkv {

/* A write() or read() of the caller: complete when all its I/Os are. */
struct StoreJob {
	StoreCompletion completion;
	uint32_t nr_ios = 0;
};

/* One I/O: an extent written, or adjacent blocks of one extent read. */
struct StoreIo {
	IoRequest request;
	std::shared_ptr<StoreJob> job; /* none: tombstones */
	uint32_t first_result = 0;     /* of the job's results */
	uint32_t first_block = 0;
	Location location; /* of the first block */
	ExtentEntry extent;
	std::vector<uint32_t> crc; /* read: what each block must have */
	uint64_t seq = 0;          /* write */
	std::vector<disk::Tombstone> tombstones;
};

struct SpillStore::Impl {
	StoreOptions options;
	StoreFile file;
	disk::Superblock super{};
	SegmentTable segments;
	StoreIndex index;

	Mapping memory; /* of the buffers */
	std::unique_ptr<BlockIo> io;
	std::vector<uint32_t> free_buffers;
	uint32_t tombstone_buffer = 0;
	bool tombstone_buffer_free = true;

	uint64_t next_token = 1, seq = 0, version = 0;
	std::unordered_map<uint64_t, StoreIo> in_flight; /* by token */
	std::deque<StoreIo> waiting;                     /* for depth */
	std::set<uint64_t> open_seqs;                    /* written but not known to be on the device */
	std::vector<StoreCompletion> completions;
	std::deque<disk::Tombstone> tombstones; /* not yet written */

	/* Written but not committed. Not ready: the write is in flight. */
	struct Pending {
		Location location;
		bool ready = false;
	};
	std::unordered_map<BlockKey, Pending, BlockKeyHash> pending;
	/* Abandoned records are complete on the device: dropping such a block needs a tombstone. */
	std::unordered_set<BlockKey, BlockKeyHash> abandoned;
	StoreStats stats;
	LogLimit limit;

	Result<> open_file();
	Result<bool> load_super();
	Result<> format(uint64_t bytes);
	Result<> set_up_io();

	[[nodiscard]] size_t buffer_stride() const { return options.extent_bytes + 2 * disk::kPage; }
	[[nodiscard]] std::byte *buffer(uint32_t i) const { return memory.data() + i * buffer_stride(); }
	[[nodiscard]] uint64_t offset_of(uint32_t segment, uint32_t offset) const
	{
		return super.log_offset + segment * super.segment_bytes + offset;
	}
	[[nodiscard]] bool is_buffer(Bounce b) const
	{
		return b.index < options.nr_buffers && b.data == buffer(b.index) + disk::kPage;
	}

	void seal_extent(disk::ExtentHeader &header, std::byte *at);
	void submit(StoreIo unit);
	void finish(StoreIo &unit, int result);
	void finish_write(StoreIo &unit, int error);
	void finish_read(StoreIo &unit, int result);
	void flush_tombstones();
	void reap();
	void queue_read(const std::shared_ptr<StoreJob> &job, uint32_t first, uint32_t nr, uint32_t result,
			Location location);
	void wake_caller();
	void complain(const char *what, int error);
};

} // namespace cxlkv
