/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A cap that was lowered. What lies behind the new end is moved to the front by
 * the cleaner; where not all fits, the longest unwritten blocks are left out, as
 * blocks that the cache has no room for. Killed half-way, the next open() finds
 * the store as it was, or a part of the way further.
 */
#include "sys/spill_store_checkpointer.h"
#include "sys/spill_store_volume.h"

#include <algorithm>

namespace cxlkv {

Result<> StoreVolume::shrink()
{
	if (segments.size() > cap_segments_) {
		uint64_t room = uint64_t{cap_segments_} * segments.segment_bytes();
		uint64_t old_end = super.segment_offset(segments.size());

		/* A checkpoint that is under way lists segments that are to go. */
		if (auto settled = settle_checkpoint(); !settled)
			return settled.error().in(file.path() + ": make smaller");
		/* A fuller store could not be cleaned. */
		evict_oldest(room / 4 * 3);
		segments.retire(cap_segments_);
		if (auto emptied = empty_retired(); !emptied)
			return emptied.error().in(file.path() + ": make smaller");
		if (auto settled = settle_checkpoint(); !settled)
			return settled.error().in(file.path() + ": make smaller");
		segments.cut();
		if (stats.nr_evicted)
			log_warning("{}: made smaller, {} blocks did not fit and are lost",
				    file.path(), stats.nr_evicted);
		/* Without it the next start would look for blocks behind the end. */
		request_checkpoint();
		if (auto settled = settle_checkpoint(); !settled)
			return settled.error().in(file.path() + ": make smaller");
		if (options.wipe == StoreOptions::Wipe::Secure) {
			auto gone = file.zero(super.segment_offset(cap_segments_),
					      std::min(file.size(), old_end));
			if (!gone)
				return gone;
		}
	}
	return file.cut(cap_bytes_);
}

/* Not a drop: without a tombstone they may come back if this start is cut off, and be right. */
void StoreVolume::evict(BlockKey key)
{
	segments.set_dead(index.erase(key));
	stats.nr_evicted++;
}

void StoreVolume::evict_oldest(uint64_t live_bytes)
{
	std::vector<std::pair<uint64_t, BlockKey>> blocks; /* by version */

	if (segments.live_bytes() <= live_bytes)
		return;
	for (uint32_t number = 0; number < segments.size(); number++) {
		for (uint32_t slot = 0; slot < segments.at(number).blocks.size(); slot++) {
			Location location{number, slot};
			if (segments.block(location).live)
				blocks.emplace_back(segments.extent(location).version,
						    segments.key(location));
		}
	}
	std::sort(blocks.begin(), blocks.end(), [](auto &a, auto &b) { return a.first < b.first; });
	for (auto &[version, key] : blocks) {
		if (segments.live_bytes() <= live_bytes)
			break;
		evict(key);
	}
}

/* All of the segment in front that has the least. */
bool StoreVolume::evict_emptiest()
{
	uint32_t least = Location::kNone;

	for (uint32_t i = 0; i < cap_segments_; i++) {
		const Segment &segment = segments.at(i);
		if (segment.state == Segment::State::Closed &&
		    (least == Location::kNone ||
		     segment.live_bytes < segments.at(least).live_bytes))
			least = i;
	}
	if (least == Location::kNone)
		return false;
	segments.pin(least); /* not freed while it is walked */
	for (uint32_t slot = 0; slot < segments.at(least).blocks.size(); slot++) {
		if (segments.block({least, slot}).live)
			evict(segments.key({least, slot}));
	}
	segments.unpin(least);
	return true;
}

Result<> StoreVolume::empty_retired()
{
	while (segments.evacuating()) {
		pump();
		if (failing())
			return error(EIO, "the device fails");
		/* Where nothing moves there is no room in front. */
		if (queue->nr_in_flight())
			queue->wait();
		else if (!evict_emptiest())
			return error(ENOSPC, "no room in front");
		queue->reap();
	}
	return ok();
}

/* Ends what is in flight, and starts nothing but the checkpoint that was asked for. */
Result<> StoreVolume::settle_checkpoint()
{
	while (!settled() || queue->nr_in_flight()) {
		flush_tombstones();
		checkpointer_->pump();
		queue->wait();
		queue->reap();
		if (failing())
			return error(EIO, "the device fails");
	}
	return ok();
}

} // namespace cxlkv
