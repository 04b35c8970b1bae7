/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks and tombstones to the volume's log, and blocks back. */
#include "sys/spill_store_volume.h"

#include "sys/spill_store_checkpointer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cxlkv {

namespace {

/* Whether a record can be what the caller has so much room for; only encoded blocks are shorter. */
bool fits(const ExtentEntry &extent, uint32_t room)
{
	return extent.format ? extent.block_bytes <= room : extent.block_bytes == room;
}

} // namespace

void StoreVolume::seal_extent(disk::ExtentHeader &header, SegmentTable::Place place, std::byte *at)
{
	header.magic = disk::kExtentMagic;
	header.store_id = super.store_id;
	header.seq = ++position.seq;
	header.completed = open_seqs.empty() ? header.seq - 1 : *open_seqs.begin() - 1;
	header.segment = place.segment;
	header.offset = place.offset;
	header.life = segments.at(place.segment).life;
	header.checkpoint = position.checkpoint;
	header.trailer = 0;
	open_seqs.insert(header.seq);
	disk::seal(header);
	memcpy(at, &header, sizeof(header));
	header.trailer = 1;
	disk::seal(header);
	memcpy(at + header.total_bytes() - disk::kPage, &header, sizeof(header));
}

void StoreVolume::write_log(SegmentTable::Place place, uint32_t buffer, uint32_t bytes,
			    uint64_t first_seq, IoQueue::Handler handler)
{
	uint64_t last_seq = position.seq;
	IoRequest request{IoRequest::Op::Write,
			  file_index,
			  buffer,
			  queue->buffer(buffer),
			  bytes,
			  super.segment_offset(place.segment) + place.offset,
			  0};

	segments.pin(place.segment);
	log_bytes_since_checkpoint += bytes;
	queue->submit(request,
		      [=, this, handler = std::move(handler)](int error, uint32_t written) {
			      stats.written_bytes += written;
			      if (error) {
				      (error == ENOSPC ? stats.nr_no_space : stats.nr_io_errors)++;
				      complain("write", error);
				      segments.close_open();
				      /* Its seqs stay open: no header may say that they are on the
				       * device. */
				      failed_seq = last_seq;
			      } else {
				      open_seqs.erase(open_seqs.lower_bound(first_seq),
						      open_seqs.upper_bound(last_seq));
			      }
			      handler(error, written);
			      segments.unpin(place.segment);
		      });
}

uint32_t StoreVolume::fitting(const BlockRun &run) const
{
	constexpr uint32_t kFrames = 2 * disk::kPage, kWorthwhile = 64 << 10;
	uint32_t left = segments.left_for_blocks();

	if (failed_seq || left < kWorthwhile + kFrames ||
	    uint64_t{run.nr} * run.block_bytes + kFrames <= left)
		return run.nr;
	uint32_t nr = (left - kFrames) / run.block_bytes;
	return nr ? nr : run.nr;
}

int StoreVolume::fill_and_check(const BlockRun &run, std::byte *data, const SpillStore::Fill &fill,
				disk::ExtentHeader &header)
{
	constexpr uint32_t a_cache_has = 64 << 10; /* bytes, from their copy to their checksum */
	const uint32_t at_once = std::max(1u, a_cache_has / run.block_bytes);

	for (uint32_t i = 0; i < run.nr; i++) {
		std::byte *block = data + size_t{i} * run.block_bytes;
		if (fill && i % at_once == 0)
			if (int err = fill(i, std::min(at_once, run.nr - i), block))
				return err;
		header.block_crc[i] = disk::block_crc(run.arena, run.first + i, run.generation,
						      header.version, {block, run.block_bytes});
	}
	return 0;
}

Result<> StoreVolume::write(const BlockRun &run, uint32_t buffer, const SpillStore::Fill &fill,
			    Done done, std::function<void()> finished)
{
	disk::ExtentHeader header{};
	header.kind = disk::Kind::Blocks;
	header.nr = static_cast<uint16_t>(run.nr);
	header.block_bytes = run.block_bytes;
	header.version = position.version + 1;
	header.arena = run.arena;
	header.first = run.first;
	header.generation = run.generation;
	header.format = run.format;
	if (int err = fill_and_check(run, queue->buffer(buffer) + disk::kPage, fill, header))
		return error(err, "the blocks could not be copied");
	if (failed_seq) {
		held_.push_back({run, buffer, std::move(done), std::move(finished)});
		checkpointer_->retry();
		return ok();
	}
	auto place = checkpoint_fits()
			     ? segments.append(header.total_bytes(), SegmentTable::For::Blocks)
			     : SegmentTable::Place{};
	if (!place) {
		stats.nr_no_space++;
		pump();
		return error(ENOSPC, "the store is full");
	}
	position.version = header.version;
	seal_extent(header, place, queue->buffer(buffer));

	Location first{place.segment,
		       segments.add(place.segment, entry_of(header), header.block_crc)};
	for (uint32_t i = 0; i < run.nr; i++) {
		Location location{place.segment, first.slot + i};
		segments.set_live(location);
		auto &slot = pending[{run.arena, run.first + i}];
		if (slot.location) {
			segments.set_dead(slot.location);
			abandoned_.insert({run.arena, run.first + i});
		}
		slot = {location, false};
	}
	stats.user_bytes += header.data_bytes();
	write_log(place, buffer, header.total_bytes(), header.seq,
		  [this, run, first, done = std::move(done),
		   finished = std::move(finished)](int error, uint32_t) {
			  finish_write(run, first, error, done);
			  finished();
		  });
	return ok();
}

/* The checkpoint that writes waited for is there, or it failed. */
void StoreVolume::release_held(int code)
{
	for (HeldWrite &one : std::exchange(held_, {})) {
		auto queued = code ? Result<>(error(code, "no checkpoint after a failed write"))
				   : write(one.run, one.buffer, {}, one.done, one.finished);
		if (queued)
			continue;
		for (uint32_t i = 0; i < one.run.nr; i++)
			one.done(i, queued.error().code, {});
		one.finished();
	}
}

void StoreVolume::finish_write(const BlockRun &run, Location first, int error, const Done &done)
{
	for (uint32_t i = 0; i < run.nr; i++) {
		Location location{first.segment, first.slot + i};
		auto it = pending.find({run.arena, run.first + i});
		done(i, error, {});
		/* Abandoned, dropped or written again meanwhile: nothing of this extent is pending.
		 */
		if (it == pending.end() || it->second.location != location)
			continue;
		it->second.ready = true;
		if (error) {
			abandoned_.insert(it->first);
			pending.erase(it);
			segments.set_dead(location);
		}
	}
}

/* One extent of tombstones is in flight at a time; what comes meanwhile goes into the next. */
void StoreVolume::flush_tombstones()
{
	if (tombstones_.empty() || tombstones_in_flight_ || failed_seq)
		return;
	disk::ExtentHeader header{};
	header.kind = disk::Kind::Tombstones;
	auto place = segments.append(header.total_bytes(), SegmentTable::For::Tombstones);
	if (!place)
		return;
	std::vector<disk::Tombstone> batch;
	while (!tombstones_.empty() && header.nr < disk::kMaxTombstones) {
		header.tombstone[header.nr++] = tombstones_.front();
		batch.push_back(tombstones_.front());
		tombstones_.pop_front();
	}
	header.version = position.version;
	seal_extent(header, place, queue->buffer(tombstone_buffer_));
	tombstones_in_flight_ = true;
	write_log(place, tombstone_buffer_, header.total_bytes(), header.seq,
		  [this, batch = std::move(batch)](int error, uint32_t) {
			  tombstones_in_flight_ = false;
			  if (error)
				  tombstones_.insert(tombstones_.begin(), batch.begin(),
						     batch.end());
		  });
}

uint32_t StoreVolume::read(const BlockRun &run, uint32_t buffer, std::byte *data, const Done &done,
			   const std::function<void()> &finished)
{
	uint32_t nr_ios = 0;

	for (uint32_t i = 0; i < run.nr;) {
		Location location = index.find({run.arena, run.first + i});
		uint32_t nr = 1;
		if (!location) {
			done(i, ENOENT, {});
		} else if (!fits(segments.extent(location), run.block_bytes)) {
			done(i, EBADMSG, {});
		} else {
			while (i + nr < run.nr &&
			       follows(location, nr, {run.arena, run.first + i + nr}))
				nr++;
			uint32_t at = i * run.block_bytes;
			read_run(
				location, nr, buffer, data + at,
				[done, i, at](uint32_t n, int error, StoredBlock stored) {
					stored.at += at;
					done(i + n, error, stored);
				},
				finished);
			nr_ios++;
		}
		i += nr;
	}
	return nr_ios;
}

/* Whether the block's record is nr places behind that one, in the same extent. */
bool StoreVolume::follows(Location location, uint32_t nr, BlockKey key) const
{
	Location next = index.find(key);

	return next == Location{location.segment, location.slot + nr} &&
	       segments.block(next).extent == segments.block(location).extent;
}

void StoreVolume::read_run(Location location, uint32_t nr, uint32_t buffer, std::byte *data,
			   Done done, std::function<void()> finished)
{
	ExtentEntry extent = segments.extent(location);
	uint32_t position_in = location.slot - extent.first_slot;
	uint32_t offset = extent.offset + disk::kPage + position_in * extent.block_bytes;
	std::vector<uint32_t> crc(nr);

	for (uint32_t i = 0; i < nr; i++)
		crc[i] = segments.block({location.segment, location.slot + i}).crc;
	segments.pin(location.segment);
	IoRequest request{IoRequest::Op::Read,
			  file_index,
			  buffer,
			  data,
			  nr * extent.block_bytes,
			  super.segment_offset(location.segment) + offset,
			  0};
	queue->submit(request, [=, this, crc = std::move(crc)](int error, uint32_t bytes) {
		if (error) {
			stats.nr_io_errors++;
			complain("read", error);
		}
		for (uint32_t i = 0; i < nr; i++) {
			std::span<const std::byte> block(data + size_t{i} * extent.block_bytes,
							 extent.block_bytes);
			if ((i + 1) * extent.block_bytes > bytes) {
				done(i, EIO, {});
				continue;
			}
			bool right =
				disk::block_crc(extent.arena, extent.first + position_in + i,
						extent.generation, extent.version, block) == crc[i];
			if (!right) {
				stats.nr_checksum_failures++;
				complain("checksum of a block", EBADMSG);
			} else {
				stats.read_bytes += extent.block_bytes;
			}
			done(i, right ? 0 : EBADMSG,
			     {i * extent.block_bytes, extent.block_bytes, extent.format});
		}
		segments.unpin(location.segment);
		finished();
	});
}

bool StoreVolume::checkpoint_fits() const
{
	return checkpoint_bytes(segments) + disk::kPage + 8 * disk::kMaxBlocks <=
	       super.checkpoint_bytes;
}

} // namespace cxlkv
