/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_cleaner.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cxlkv {

bool StoreCleaner::due() const
{
	const SegmentTable &segments = volume_.segments;

	if (volume_.failed_seq)
		return false;
	return segments.evacuating() ||
	       segments.nr_free() + segments.nr_freed() < segments.kept_free();
}

void StoreCleaner::pump()
{
	if (victim_ != Location::kNone || !due())
		return;
	uint32_t victim = volume_.segments.victim();
	if (victim == Location::kNone)
		return;
	gather(victim);
	if (runs_.empty())
		return;
	victim_ = victim;
	volume_.segments.pin(victim_);
	read();
}

/* As many runs of the victim as fit into the buffer and into the log. */
void StoreCleaner::gather(uint32_t victim)
{
	const Segment &segment = volume_.segments.at(victim);
	uint32_t used = 0, most = static_cast<uint32_t>(volume_.queue->buffer_bytes());

	most = std::min(most, volume_.segments.left_for_moved());
	runs_.clear();
	for (uint32_t slot = 0; slot < segment.blocks.size(); slot++) {
		const BlockEntry &block = segment.blocks[slot];
		if (!block.live)
			continue;
		const ExtentEntry &extent = segment.extents[block.extent];
		bool joins = !runs_.empty() && runs_.back().first.slot + runs_.back().nr == slot &&
			     segment.blocks[slot - 1].extent == block.extent;
		uint32_t more = extent.block_bytes + (joins ? 0 : 2 * disk::kPage);
		if (used + more > most)
			return;
		if (!joins) {
			Run run;
			run.first = {victim, slot};
			run.extent = extent;
			run.first_block = extent.first + (slot - extent.first_slot);
			run.at = used;
			runs_.push_back(run);
		}
		runs_.back().nr++;
		runs_.back().crc.push_back(block.crc);
		used += more;
	}
}

void StoreCleaner::read()
{
	nr_reading_ = runs_.size();
	for (Run &run : runs_) {
		uint32_t offset = run.extent.offset + disk::kPage +
				  (run.first.slot - run.extent.first_slot) * run.extent.block_bytes;
		IoRequest request{IoRequest::Op::Read,
				  volume_.file_index,
				  buffer_,
				  volume_.queue->buffer(buffer_) + run.at + disk::kPage,
				  run.data_bytes(),
				  volume_.super.segment_offset(victim_) + offset,
				  0};
		volume_.queue->submit(request, [this, &run](int, uint32_t bytes) {
			verify(run, bytes);
			if (--nr_reading_ == 0)
				write();
		});
	}
}

/* Blocks that cannot be read any more are lost, as read() would have found. */
void StoreCleaner::verify(Run &run, uint32_t bytes)
{
	const ExtentEntry &e = run.extent;

	for (uint32_t i = 0; i < run.nr; i++) {
		std::span<const std::byte> block(volume_.queue->buffer(buffer_) + run.at +
							 disk::kPage + size_t{i} * e.block_bytes,
						 e.block_bytes);
		bool right = (i + 1) * e.block_bytes <= bytes &&
			     disk::block_crc(e.arena, run.first_block + i, e.generation, e.version,
					     block) == run.crc[i];
		if (right)
			continue;
		run.bad = true;
		lose({run.first.segment, run.first.slot + i});
	}
}

void StoreCleaner::lose(Location location)
{
	if (!volume_.segments.block(location).live)
		return;
	volume_.stats.nr_checksum_failures++;
	volume_.complain("checksum of a block that was to be moved", EBADMSG);
	volume_.lose(location);
}

/*
 * Moves the runs that are as live as when they were read: what has died since
 * must not be written again, since its tombstone lies before it in the log.
 */
void StoreCleaner::write()
{
	std::byte *base = volume_.queue->buffer(buffer_);
	uint32_t used = 0;

	std::erase_if(runs_, [&](const Run &run) {
		bool live = !run.bad;
		for (uint32_t i = 0; i < run.nr; i++)
			live = live &&
			       volume_.segments.block({run.first.segment, run.first.slot + i}).live;
		return !live;
	});
	for (Run &run : runs_) {
		memmove(base + used + disk::kPage, base + run.at + disk::kPage, run.data_bytes());
		run.at = used;
		used += run.bytes();
	}
	auto place = used && !volume_.failed_seq
			     ? volume_.segments.append(used, SegmentTable::For::Moved)
			     : SegmentTable::Place{};
	if (!place) {
		finish();
		return;
	}
	uint64_t first_seq = volume_.position.seq + 1;
	std::vector<Location> to;
	for (Run &run : runs_)
		to.push_back(seal(run, {place.segment, place.offset + run.at}));
	volume_.write_log(place, buffer_, used, first_seq,
			  [this, to = std::move(to)](int error, uint32_t bytes) {
				  volume_.stats.cleaned_bytes += bytes;
				  for (size_t i = 0; !error && i < runs_.size(); i++)
					  move(runs_[i], to[i]);
				  finish();
			  });
}

Location StoreCleaner::seal(const Run &run, SegmentTable::Place place)
{
	disk::ExtentHeader header{};

	header.kind = disk::Kind::Blocks;
	header.nr = static_cast<uint16_t>(run.nr);
	header.block_bytes = run.extent.block_bytes;
	header.version = run.extent.version;
	header.arena = run.extent.arena;
	header.first = run.first_block;
	header.generation = run.extent.generation;
	header.format = run.extent.format;
	std::copy(run.crc.begin(), run.crc.end(), header.block_crc);
	volume_.seal_extent(header, place, volume_.queue->buffer(buffer_) + run.at);
	return {place.segment,
		volume_.segments.add(place.segment, entry_of(header), header.block_crc)};
}

/* Blocks that died, or were written again, during the move stay dead in the new place. */
void StoreCleaner::move(const Run &run, Location to)
{
	for (uint32_t i = 0; i < run.nr; i++) {
		Location from{run.first.segment, run.first.slot + i}, now{to.segment, to.slot + i};
		BlockKey key{run.extent.arena, run.first_block + i};
		auto it = volume_.pending.find(key);
		if (volume_.index.find(key) == from)
			volume_.index.set(key, now);
		else if (it != volume_.pending.end() && it->second.location == from)
			it->second.location = now;
		else
			continue;
		volume_.segments.set_live(now);
		volume_.segments.set_dead(from);
	}
}

void StoreCleaner::finish()
{
	uint32_t victim = std::exchange(victim_, Location::kNone);

	runs_.clear();
	volume_.segments.unpin(victim);
	/* From the caller's poll(), so that a long cleaning does not recurse. */
	volume_.queue->wake();
}

} // namespace cxlkv
