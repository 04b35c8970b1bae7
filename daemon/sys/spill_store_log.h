/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The log's segments in memory: which extents and blocks each holds, which of
 * them are live, and where the next extent goes. No I/O.
 *
 * A segment with nothing live in it is *freed*, but it may be written again only
 * after a checkpoint that knows it as free (then it is *free*): until then
 * recovery would still look for its blocks there. Free segments are used in the
 * order that the checkpoint lists them, so that recovery knows where the log
 * goes on.
 *
 * The log grows at two ends: what was just written dies soon or lives long, what
 * was moved has shown that it lives long. Mixed, each segment would keep a few
 * old blocks that have to be moved again and again.
 */
#pragma once

#include "sys/spill_store_disk.h"
#include "sys/spill_store_index.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

namespace cxlkv {

struct ExtentEntry {
	uint64_t arena = 0, version = 0;
	uint32_t first = 0, generation = 0, block_bytes = 0;
	uint32_t offset = 0;     /* of the header in the segment */
	uint32_t first_slot = 0; /* of block first */
	uint32_t nr = 0;
	uint32_t format = 0;
};

ExtentEntry entry_of(const disk::ExtentHeader &header);

struct BlockEntry {
	uint32_t crc = 0;
	uint16_t extent = 0;
	bool live = false;
};

struct Segment {
	enum class State : uint8_t { Free, Open, Closed, Freed, Retired };
	State state = State::Free;
	bool unwiped = false; /* free, but with old contents that must be wiped before it is used */
	bool evacuate = false; /* what is live in it shall be moved, so that it can be wiped */
	uint32_t life = 0;
	uint32_t used_bytes = 0;
	uint64_t data_bytes = 0; /* of all its blocks, dead ones too */
	uint64_t live_bytes = 0;
	uint32_t nr_pins = 0; /* I/O in flight */
	std::vector<ExtentEntry> extents;
	std::vector<BlockEntry> blocks;
};

/* Where the log grows: with what is written (tombstones too), with what is moved. */
using OpenSegments = std::array<uint32_t, disk::kNrEnds>;
constexpr OpenSegments kNoneOpen = {Location::kNone, Location::kNone};

class SegmentTable {
public:
	SegmentTable() = default;
	SegmentTable(uint32_t nr_segments, uint32_t segment_bytes);

	/* Upkeep (tombstones, what the cleaner moves) may use the reserve. */
	enum class For : uint8_t { Blocks, Tombstones, Moved };
	struct Place {
		uint32_t segment = Location::kNone;
		uint32_t offset = 0;
		explicit operator bool() const { return segment != Location::kNone; }
	};
	/* Room in the end's open segment, or in the next free one. */
	Place append(uint32_t bytes, For use);
	/* Bytes left in the open segment of what is written; 0 where another could not follow it.
	 */
	[[nodiscard]] uint32_t left_for_blocks() const;
	/* The most that the cleaner can append now, filling its open segment first. */
	[[nodiscard]] uint32_t left_for_moved() const;
	/* The open segments take no more, as after a write error. */
	void close_open();

	/* Enters an extent, all of it dead; returns the first block's slot. */
	uint32_t add(uint32_t segment, ExtentEntry entry, const uint32_t *crc);
	void set_live(Location location);
	void set_dead(Location location);
	void pin(uint32_t segment) { segments_[segment].nr_pins++; }
	void unpin(uint32_t segment);

	/* Marks what holds any record of these blocks, dead or live, for cleaning. */
	void evacuate(const std::vector<disk::Tombstone> &tombstones);
	/* Only the mark, as a checkpoint has it. */
	void mark_evacuate(uint32_t segment);
	void cancel_evacuation();
	[[nodiscard]] bool evacuating() const { return nr_evacuating_ > 0; }
	/* The closed segment that is cheapest to clean, or kNone where none is worth it. */
	[[nodiscard]] uint32_t victim() const;

	/* Nothing goes into segments from that one on any more, and what is live there shall be
	 * moved. */
	void retire(uint32_t from);
	/* Forgets the retired ones, which must be empty. */
	void cut();

	/* Segments that the checkpoint now written lists as free: free ones, then freed ones. */
	[[nodiscard]] std::vector<uint32_t> list_free() const;
	/* That checkpoint is on the device: its freed segments may be used; unwiped ones wait for
	 * wiped(). */
	void release(const std::vector<uint32_t> &listed);
	void set_wiping(bool on) { wiping_ = on; } /* else unwiped segments are used as they are */
	[[nodiscard]] uint32_t next_unwiped() const;
	void wiped(uint32_t segment);

	/* For recovery: the list as it was, the segment that was open, and what is free in the end.
	 */
	void restore_free(std::deque<uint32_t> free) { free_ = std::move(free); }
	void restore_open(const OpenSegments &open);
	void settle();

	[[nodiscard]] Segment &at(uint32_t segment) { return segments_[segment]; }
	[[nodiscard]] const Segment &at(uint32_t segment) const { return segments_[segment]; }
	[[nodiscard]] const BlockEntry &block(Location l) const
	{
		return segments_[l.segment].blocks[l.slot];
	}
	[[nodiscard]] const ExtentEntry &extent(Location l) const
	{
		return segments_[l.segment].extents[block(l).extent];
	}
	[[nodiscard]] BlockKey key(Location l) const
	{
		const ExtentEntry &e = extent(l);
		return {e.arena, e.first + (l.slot - e.first_slot)};
	}
	[[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(segments_.size()); }
	[[nodiscard]] uint32_t segment_bytes() const { return segment_bytes_; }
	[[nodiscard]] uint64_t live_bytes() const { return live_bytes_; }
	[[nodiscard]] const OpenSegments &open() const { return open_; }
	[[nodiscard]] bool is_open(uint32_t segment) const
	{
		return std::find(open_.begin(), open_.end(), segment) != open_.end();
	}
	[[nodiscard]] uint32_t nr_free() const { return static_cast<uint32_t>(free_.size()); }
	[[nodiscard]] uint32_t nr_freed() const { return static_cast<uint32_t>(freed_.size()); }
	[[nodiscard]] uint64_t unwiped_bytes() const;
	[[nodiscard]] uint32_t largest_block() const;
	[[nodiscard]] uint64_t nr_extents() const { return nr_extents_; }
	[[nodiscard]] uint64_t nr_slots() const { return nr_slots_; }
	/* Segments that only upkeep may use. */
	[[nodiscard]] uint32_t reserve() const { return std::max(2u, size() / 128); }
	/*
	 * Free ones that the cleaner keeps. More would leave the dead less room to
	 * gather in before something is moved, fewer would need more checkpoints.
	 */
	[[nodiscard]] uint32_t kept_free() const { return reserve() + std::max(1u, size() / 40); }

private:
	[[nodiscard]] bool worth_cleaning(const Segment &segment) const;
	void free_if_empty(uint32_t segment);
	void close(uint32_t &end);

	uint32_t segment_bytes_ = 0;
	bool wiping_ = false;
	OpenSegments open_ = kNoneOpen;
	std::vector<Segment> segments_;
	std::deque<uint32_t> free_;
	std::deque<uint32_t> freed_;
	uint32_t nr_evacuating_ = 0;
	uint32_t end_ = UINT32_MAX; /* segments from there on are retired */
	uint64_t live_bytes_ = 0, nr_extents_ = 0, nr_slots_ = 0;
};

} // namespace cxlkv
