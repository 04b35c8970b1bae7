/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The log's segments in memory: which extents and blocks each holds, which of
 * them are live, and where the next extent goes. No I/O. A segment is free
 * again when nothing in it is live and nobody reads or writes it.
 */
#pragma once

#include "sys/spill_store_disk.h"
#include "sys/spill_store_index.h"

#include <cstdint>
#include <vector>

namespace cxlkv {

struct ExtentEntry {
	uint64_t arena = 0, version = 0;
	uint32_t first = 0, generation = 0, block_bytes = 0;
	uint32_t offset = 0;     /* of the header in the segment */
	uint32_t first_slot = 0; /* of block first */
	uint32_t nr = 0;
};

struct BlockEntry {
	uint32_t crc = 0;
	uint16_t extent = 0;
	bool live = false;
};

struct Segment {
	bool used = false;
	uint32_t life = 0;
	uint32_t used_bytes = 0;
	uint64_t live_bytes = 0;
	uint32_t nr_pins = 0;       /* I/O in flight */
	uint32_t nr_tombstones = 0; /* these keep it from being freed */
	std::vector<ExtentEntry> extents;
	std::vector<BlockEntry> blocks;
};

class SegmentTable {
public:
	SegmentTable() = default;
	SegmentTable(uint32_t nr_segments, uint32_t segment_bytes);

	/* Room for bytes in the open segment, or in the next free one; kNone where there is none. */
	struct Place {
		uint32_t segment = Location::kNone;
		uint32_t offset = 0;
	};
	/* Ordinary writes leave kReserve segments, for tombstones. */
	Place append(uint32_t bytes, bool ordinary);
	/* The open segment takes no more, as after a write error. */
	void close_open() { open_ = Location::kNone; }

	/* Enters an extent of dead blocks, as its header says; returns the first block's slot. */
	uint32_t add(const disk::ExtentHeader &header);
	void set_live(Location location);
	void set_dead(Location location);
	void pin(uint32_t segment) { segments_[segment].nr_pins++; }
	void unpin(uint32_t segment);
	/* After recovery: every segment without live data is free. */
	void free_unused();

	[[nodiscard]] Segment &at(uint32_t segment) { return segments_[segment]; }
	[[nodiscard]] const Segment &at(uint32_t segment) const { return segments_[segment]; }
	[[nodiscard]] const BlockEntry &block(Location l) const { return segments_[l.segment].blocks[l.slot]; }
	[[nodiscard]] const ExtentEntry &extent(Location l) const
	{
		return segments_[l.segment].extents[block(l).extent];
	}
	[[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(segments_.size()); }
	[[nodiscard]] uint32_t segment_bytes() const { return segment_bytes_; }
	[[nodiscard]] uint64_t live_bytes() const { return live_bytes_; }

private:
	static constexpr uint32_t kReserve = 1;
	void free_if_empty(uint32_t segment);

	uint32_t segment_bytes_ = 0;
	uint32_t open_ = Location::kNone;
	std::vector<Segment> segments_;
	std::vector<uint32_t> free_;
	uint64_t live_bytes_ = 0;
};

} // namespace cxlkv
