/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_log.h"

#include <algorithm>

namespace cxlkv {

SegmentTable::SegmentTable(uint32_t nr_segments, uint32_t segment_bytes)
    : segment_bytes_(segment_bytes), segments_(nr_segments)
{
}

SegmentTable::Place SegmentTable::append(uint32_t bytes, bool ordinary)
{
	if (open_ == Location::kNone || segments_[open_].used_bytes + bytes > segment_bytes_) {
		if (free_.size() <= (ordinary ? kReserve : 0))
			return {};
		uint32_t old = std::exchange(open_, free_.back());
		free_.pop_back();
		segments_[open_].used = true;
		segments_[open_].life++;
		if (old != Location::kNone)
			free_if_empty(old);
	}
	Place place{open_, segments_[open_].used_bytes};
	segments_[open_].used_bytes += bytes;
	return place;
}

uint32_t SegmentTable::add(const disk::ExtentHeader &header)
{
	Segment &segment = segments_[header.segment];

	if (header.kind == disk::Kind::Tombstones) {
		segment.nr_tombstones += header.nr;
		return 0;
	}
	auto slot = static_cast<uint32_t>(segment.blocks.size());
	auto extent = static_cast<uint16_t>(segment.extents.size());
	segment.extents.push_back({header.arena, header.version, header.first, header.generation,
				   header.block_bytes, header.offset, slot, header.nr});
	for (uint32_t i = 0; i < header.nr; i++)
		segment.blocks.push_back({header.block_crc[i], extent, false});
	return slot;
}

void SegmentTable::set_live(Location location)
{
	Segment &segment = segments_[location.segment];
	BlockEntry &entry = segment.blocks[location.slot];

	if (!entry.live) {
		entry.live = true;
		segment.live_bytes += segment.extents[entry.extent].block_bytes;
		live_bytes_ += segment.extents[entry.extent].block_bytes;
	}
}

void SegmentTable::set_dead(Location location)
{
	Segment &segment = segments_[location.segment];
	BlockEntry &entry = segment.blocks[location.slot];

	if (entry.live) {
		entry.live = false;
		segment.live_bytes -= segment.extents[entry.extent].block_bytes;
		live_bytes_ -= segment.extents[entry.extent].block_bytes;
		free_if_empty(location.segment);
	}
}

void SegmentTable::unpin(uint32_t segment)
{
	segments_[segment].nr_pins--;
	free_if_empty(segment);
}

void SegmentTable::free_unused()
{
	for (uint32_t i = size(); i-- > 0;) {
		segments_[i].used = true;
		free_if_empty(i);
	}
}

void SegmentTable::free_if_empty(uint32_t number)
{
	Segment &segment = segments_[number];

	if (!segment.used || number == open_ || segment.live_bytes || segment.nr_pins ||
	    segment.nr_tombstones)
		return;
	segment.used = false;
	segment.used_bytes = 0;
	segment.extents.clear();
	segment.blocks.clear();
	free_.push_back(number);
}

} // namespace cxlkv
