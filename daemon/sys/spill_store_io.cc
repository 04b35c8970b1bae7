/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* I/O of the store: extents and tombstones out, blocks in, and what completions mean. */
#include "sys/spill_store_impl.h"

#include <cstring>
#include <sys/eventfd.h>

namespace cxlkv {

void SpillStore::Impl::wake_caller()
{
	eventfd_write(io->event_fd(), 1);
}

void SpillStore::Impl::complain(const char *what, int error)
{
	uint64_t skipped;

	if (limit.allow(&skipped))
		log_warning("{}: {}: {}{}", file.path(), what, strerror(error),
			    skipped ? fmt::format(" ({} more like it)", skipped) : "");
}

/* Writes header and trailer around the blocks, which lie one page behind at. */
void SpillStore::Impl::seal_extent(disk::ExtentHeader &header, std::byte *at)
{
	header.magic = disk::kExtentMagic;
	header.store_id = super.store_id;
	header.seq = ++seq;
	header.completed = open_seqs.empty() ? seq - 1 : *open_seqs.begin() - 1;
	header.life = segments.at(header.segment).life;
	open_seqs.insert(seq);
	disk::seal(header);
	memcpy(at, &header, sizeof(header));
	disk::ExtentHeader trailer = header;
	trailer.trailer = 1;
	disk::seal(trailer);
	memcpy(at + header.total_bytes() - disk::kPage, &trailer, sizeof(trailer));
}

void SpillStore::Impl::submit(StoreIo unit)
{
	segments.pin(unit.location.segment);
	unit.request.token = next_token++;
	if (waiting.empty() && io->submit(unit.request))
		in_flight.emplace(unit.request.token, std::move(unit));
	else
		waiting.push_back(std::move(unit));
}

void SpillStore::Impl::reap()
{
	std::vector<IoDone> ready;

	io->reap(ready);
	for (const IoDone &one : ready) {
		auto it = in_flight.find(one.token);
		if (it == in_flight.end())
			continue;
		StoreIo unit = std::move(it->second);
		in_flight.erase(it);
		finish(unit, one.result);
	}
	while (!waiting.empty() && io->submit(waiting.front().request)) {
		in_flight.emplace(waiting.front().request.token, std::move(waiting.front()));
		waiting.pop_front();
	}
	flush_tombstones();
}

void SpillStore::Impl::finish(StoreIo &unit, int result)
{
	bool whole = result >= 0 && static_cast<uint32_t>(result) == unit.request.bytes;
	int error = whole ? 0 : result < 0 ? -result : EIO;

	if (error) {
		/* What a device answers beside ENOSPC (ENXIO, EREMOTEIO, ...) is one thing to the caller. */
		error = error == ENOSPC ? ENOSPC : EIO;
		(error == ENOSPC ? stats.nr_no_space : stats.nr_io_errors)++;
		complain(unit.request.write ? "write" : "read", error);
	}
	if (unit.request.write) {
		stats.written_bytes += whole ? unit.request.bytes : 0;
		finish_write(unit, error);
	} else {
		finish_read(unit, result);
	}
	segments.unpin(unit.location.segment);
	if (unit.job && --unit.job->nr_ios == 0)
		completions.push_back(std::move(unit.job->completion));
}

void SpillStore::Impl::finish_write(StoreIo &unit, int error)
{
	/* A failed extent stays open for ever: no later header may say that it is on the device. */
	if (!error)
		open_seqs.erase(unit.seq);
	else
		segments.close_open();
	if (!unit.job) {
		tombstone_buffer_free = true;
		if (error)
			tombstones.insert(tombstones.begin(), unit.tombstones.begin(), unit.tombstones.end());
		return;
	}
	for (uint32_t i = 0; i < unit.extent.nr; i++) {
		Location location{unit.location.segment, unit.location.slot + i};
		auto it = pending.find({unit.extent.arena, unit.extent.first + i});
		unit.job->completion.results[i] = error;
		/* Abandoned, dropped or written again meanwhile: nothing of this extent is pending. */
		if (it == pending.end() || it->second.location != location)
			continue;
		it->second.ready = true;
		if (error) {
			abandoned.insert(it->first);
			pending.erase(it);
			segments.set_dead(location);
		}
	}
}

void SpillStore::Impl::finish_read(StoreIo &unit, int result)
{
	uint32_t block_bytes = unit.extent.block_bytes;
	uint32_t nr_read = result < 0 ? 0 : static_cast<uint32_t>(result) / block_bytes;

	for (uint32_t i = 0; i < unit.crc.size(); i++) {
		int &out = unit.job->completion.results[unit.first_result + i];
		std::span<const std::byte> bytes(unit.request.data + size_t{i} * block_bytes, block_bytes);
		if (i >= nr_read) {
			out = EIO;
		} else if (disk::block_crc(unit.extent.arena, unit.first_block + i, unit.extent.generation,
					   unit.extent.version, bytes) != unit.crc[i]) {
			out = EBADMSG;
			stats.nr_checksum_failures++;
			complain("checksum of a block", EBADMSG);
		} else {
			out = 0;
			stats.read_bytes += block_bytes;
		}
	}
}

/* Reads nr blocks that lie side by side in one extent. */
void SpillStore::Impl::queue_read(const std::shared_ptr<StoreJob> &job, uint32_t first, uint32_t nr,
				  uint32_t result, Location location)
{
	StoreIo unit;

	unit.job = job;
	unit.first_result = result;
	unit.first_block = first;
	unit.location = location;
	unit.extent = segments.extent(location);
	for (uint32_t i = 0; i < nr; i++)
		unit.crc.push_back(segments.block({location.segment, location.slot + i}).crc);
	uint32_t block_bytes = unit.extent.block_bytes;
	uint32_t offset = unit.extent.offset + disk::kPage + (location.slot - unit.extent.first_slot) * block_bytes;
	unit.request = {false,
			0,
			job->completion.buffer.index,
			job->completion.buffer.data + size_t{result} * block_bytes,
			nr * block_bytes,
			offset_of(location.segment, offset),
			0};
	job->nr_ios++;
	submit(std::move(unit));
}

/* One extent of tombstones is in flight at a time; what comes meanwhile goes into the next. */
void SpillStore::Impl::flush_tombstones()
{
	if (tombstones.empty() || !tombstone_buffer_free)
		return;
	disk::ExtentHeader header{};
	header.kind = disk::Kind::Tombstones;
	auto place = segments.append(header.total_bytes(), false);
	if (place.segment == Location::kNone)
		return;
	StoreIo unit;
	while (!tombstones.empty() && header.nr < disk::kMaxTombstones) {
		header.tombstone[header.nr++] = tombstones.front();
		unit.tombstones.push_back(tombstones.front());
		tombstones.pop_front();
	}
	header.segment = place.segment;
	header.offset = place.offset;
	header.version = version;
	seal_extent(header, buffer(tombstone_buffer));
	segments.add(header);
	unit.location = {place.segment, 0};
	unit.seq = header.seq;
	unit.request = {true, 0, tombstone_buffer, buffer(tombstone_buffer), header.total_bytes(),
			offset_of(place.segment, place.offset), 0};
	tombstone_buffer_free = false;
	submit(std::move(unit));
}

} // namespace cxlkv
