/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_log.h"

#include <iterator>
#include <map>
#include <utility>

namespace cxlkv {

ExtentEntry entry_of(const disk::ExtentHeader &h)
{
	return {h.arena,  h.version, h.first, h.generation, h.block_bytes,
		h.offset, 0,         h.nr,    h.format};
}

SegmentTable::SegmentTable(uint32_t nr_segments, uint32_t segment_bytes)
    : segment_bytes_(segment_bytes), segments_(nr_segments)
{
}

SegmentTable::Place SegmentTable::append(uint32_t bytes, For use)
{
	uint32_t &end = open_[use == For::Moved ? 1 : 0];

	/* What is left of a segment that upkeep opened from the reserve is upkeep's too. */
	if (use == For::Blocks && free_.size() < reserve())
		return {};
	if (end == Location::kNone || segments_[end].used_bytes + bytes > segment_bytes_) {
		uint32_t kept = use == For::Blocks ? reserve() : 0;
		if (free_.size() <= kept || (wiping_ && segments_[free_.front()].unwiped))
			return {};
		close(end);
		end = free_.front();
		free_.pop_front();
		segments_[end].state = Segment::State::Open;
		segments_[end].unwiped = false;
		segments_[end].life++;
	}
	Place place{end, segments_[end].used_bytes};
	segments_[end].used_bytes += bytes;
	return place;
}

uint32_t SegmentTable::left_for_blocks() const
{
	if (open_[0] == Location::kNone || free_.size() <= reserve())
		return 0;
	return segment_bytes_ - segments_[open_[0]].used_bytes;
}

uint32_t SegmentTable::left_for_moved() const
{
	constexpr uint32_t kWorthwhile = 72 << 10;
	uint32_t left =
		open_[1] == Location::kNone ? 0 : segment_bytes_ - segments_[open_[1]].used_bytes;
	bool another = !free_.empty() && !(wiping_ && segments_[free_.front()].unwiped);

	return another && left < kWorthwhile ? segment_bytes_ : left;
}

void SegmentTable::close_open()
{
	for (uint32_t &end : open_)
		close(end);
}

void SegmentTable::close(uint32_t &end)
{
	uint32_t old = std::exchange(end, Location::kNone);

	if (old == Location::kNone)
		return;
	segments_[old].state = Segment::State::Closed;
	free_if_empty(old);
}

uint32_t SegmentTable::add(uint32_t number, ExtentEntry entry, const uint32_t *crc)
{
	Segment &segment = segments_[number];
	auto extent = static_cast<uint16_t>(segment.extents.size());

	entry.first_slot = static_cast<uint32_t>(segment.blocks.size());
	segment.extents.push_back(entry);
	for (uint32_t i = 0; i < entry.nr; i++)
		segment.blocks.push_back({crc[i], extent, false});
	segment.data_bytes += uint64_t{entry.nr} * entry.block_bytes;
	nr_extents_++;
	nr_slots_ += entry.nr;
	return entry.first_slot;
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

namespace {

/* Dropped blocks as ranges in order that do not overlap, so that an extent is looked up in them. */
class DroppedBlocks {
public:
	explicit DroppedBlocks(const std::vector<disk::Tombstone> &tombstones)
	{
		for (const disk::Tombstone &t : tombstones)
			add({t.arena, t.first},
			    t.nr == UINT32_MAX ? UINT64_MAX : t.first + uint64_t{t.nr});
	}
	[[nodiscard]] bool touch(const ExtentEntry &extent) const
	{
		/* The last range that begins before the extent ends. */
		auto it = ends_.lower_bound({extent.arena, uint64_t{extent.first} + extent.nr});

		return it != ends_.begin() && (--it)->first.first == extent.arena &&
		       it->second > extent.first;
	}

private:
	using Start = std::pair<uint64_t, uint64_t>; /* arena, block */

	void add(Start start, uint64_t end)
	{
		auto it = ends_.lower_bound(start);

		if (it != ends_.begin() && std::prev(it)->first.first == start.first &&
		    std::prev(it)->second >= start.second)
			it = std::prev(it);
		while (it != ends_.end() && it->first.first == start.first &&
		       it->first.second <= end) {
			start = std::min(start, it->first);
			end = std::max(end, it->second);
			it = ends_.erase(it);
		}
		ends_.emplace(start, end);
	}

	std::map<Start, uint64_t> ends_;
};

} // namespace

void SegmentTable::evacuate(const std::vector<disk::Tombstone> &tombstones)
{
	DroppedBlocks dropped(tombstones);

	for (uint32_t i = 0; i < size(); i++) {
		const Segment &segment = segments_[i];
		if (std::none_of(segment.extents.begin(), segment.extents.end(),
				 [&](const ExtentEntry &e) { return dropped.touch(e); }))
			continue;
		mark_evacuate(i);
		for (uint32_t &end : open_) {
			if (i == end)
				close(end);
		}
	}
}

void SegmentTable::mark_evacuate(uint32_t segment)
{
	nr_evacuating_ += !segments_[segment].evacuate;
	segments_[segment].evacuate = true;
}

void SegmentTable::cancel_evacuation()
{
	for (Segment &segment : segments_)
		segment.evacuate = false;
	nr_evacuating_ = 0;
}

/* Moving what has hardly any dead blocks frees nothing, unless the segment was closed early. */
bool SegmentTable::worth_cleaning(const Segment &segment) const
{
	return segment.live_bytes <= segment.data_bytes - segment.data_bytes / 8 ||
	       segment.live_bytes <= segment_bytes_ / 4;
}

uint32_t SegmentTable::victim() const
{
	uint32_t best = Location::kNone, evacuated = Location::kNone;
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < size(); i++) {
		const Segment &segment = segments_[i];
		if (segment.state != Segment::State::Closed || segment.nr_pins)
			continue;
		if (segment.evacuate) {
			evacuated = i;
		} else if (segment.live_bytes < least && worth_cleaning(segment)) {
			least = segment.live_bytes;
			best = i;
		}
	}
	/* Room first, where there is hardly any to move to. */
	bool tight = nr_free() + nr_freed() <= reserve() && best != Location::kNone;
	return evacuated != Location::kNone && !tight ? evacuated : best;
}

void SegmentTable::retire(uint32_t from)
{
	auto gone = [from](uint32_t number) { return number >= from; };

	end_ = from;
	std::erase_if(free_, gone);
	std::erase_if(freed_, gone);
	for (uint32_t &end : open_) {
		if (end != Location::kNone && gone(end))
			close(end);
	}
	for (uint32_t i = from; i < size(); i++) {
		Segment &segment = segments_[i];
		if (segment.state != Segment::State::Closed) {
			segment.state = Segment::State::Retired;
			continue;
		}
		nr_evacuating_ += !segment.evacuate;
		segment.evacuate = true;
	}
}

void SegmentTable::cut()
{
	segments_.resize(std::min(size(), end_));
	end_ = UINT32_MAX;
}

std::vector<uint32_t> SegmentTable::list_free() const
{
	std::vector<uint32_t> list(free_.begin(), free_.end());

	list.insert(list.end(), freed_.begin(), freed_.end());
	return list;
}

void SegmentTable::release(const std::vector<uint32_t> &listed)
{
	for (uint32_t number : listed) {
		if (segments_[number].state != Segment::State::Freed)
			continue;
		freed_.erase(std::find(freed_.begin(), freed_.end(), number));
		segments_[number].state = Segment::State::Free;
		free_.push_back(number);
	}
}

uint32_t SegmentTable::next_unwiped() const
{
	for (uint32_t number : free_) {
		if (segments_[number].unwiped)
			return number;
	}
	return Location::kNone;
}

void SegmentTable::wiped(uint32_t segment)
{
	segments_[segment].unwiped = false;
}

uint64_t SegmentTable::unwiped_bytes() const
{
	uint64_t nr = 0;

	for (const Segment &segment : segments_)
		nr += segment.evacuate || segment.unwiped;
	return wiping_ ? nr * segment_bytes_ : 0;
}

uint32_t SegmentTable::largest_block() const
{
	uint32_t bytes = 0;

	for (const Segment &segment : segments_) {
		for (const ExtentEntry &extent : segment.extents)
			bytes = std::max(bytes, extent.block_bytes);
	}
	return bytes;
}

void SegmentTable::restore_open(const OpenSegments &open)
{
	open_ = open;
}

void SegmentTable::settle()
{
	freed_.clear();
	for (uint32_t i = 0; i < size(); i++) {
		segments_[i].state = is_open(i) ? Segment::State::Open : Segment::State::Closed;
	}
	for (uint32_t number : free_)
		segments_[number].state = Segment::State::Free;
	for (uint32_t i = 0; i < size(); i++)
		free_if_empty(i);
}

void SegmentTable::free_if_empty(uint32_t number)
{
	Segment &segment = segments_[number];

	if (segment.state != Segment::State::Closed || segment.live_bytes || segment.nr_pins)
		return;
	nr_extents_ -= segment.extents.size();
	nr_slots_ -= segment.blocks.size();
	segment.extents.clear();
	segment.blocks.clear();
	segment.unwiped |= segment.used_bytes > 0;
	nr_evacuating_ -= segment.evacuate;
	segment.evacuate = false;
	segment.used_bytes = 0;
	segment.data_bytes = 0;
	segment.state = number < end_ ? Segment::State::Freed : Segment::State::Retired;
	if (number < end_)
		freed_.push_back(number);
}

} // namespace cxlkv
