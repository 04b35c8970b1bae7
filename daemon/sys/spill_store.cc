/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store's interface: requests in, completions out. */
#include "sys/spill_store.h"

#include "sys/spill_store_impl.h"

#include <poll.h>

namespace cxlkv {

SpillStore::SpillStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

SpillStore::~SpillStore()
{
	/* The buffers belong to the kernel while I/O is in flight. */
	if (auto done = sync(); !done)
		log_warning("closing the store: {}", done.error().what);
}

Bounce SpillStore::take_buffer()
{
	if (impl_->free_buffers.empty())
		return {};
	uint32_t i = impl_->free_buffers.back();
	impl_->free_buffers.pop_back();
	return {impl_->buffer(i) + disk::kPage, i};
}

void SpillStore::give_buffer(Bounce buffer)
{
	impl_->free_buffers.push_back(buffer.index);
}

namespace {

Result<> check_request(uint32_t first, uint32_t nr, uint32_t block_bytes, uint32_t extent_bytes)
{
	if (nr == 0 || nr > disk::kMaxBlocks || block_bytes == 0 || block_bytes % disk::kPage ||
	    uint64_t{nr} * block_bytes > extent_bytes || first + (nr - 1) < first)
		return error(EINVAL, fmt::format("{} blocks of {} bytes do not fit into an extent of {} bytes",
						 nr, block_bytes, extent_bytes));
	return ok();
}

} // namespace

Result<> SpillStore::write(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes,
			   uint32_t generation, Bounce buffer, uint64_t tag)
{
	Impl &s = *impl_;

	if (auto checked = check_request(first, nr, block_bytes, s.options.extent_bytes); !checked)
		return checked;
	if (!s.is_buffer(buffer))
		return error(EINVAL, "not a buffer of this store");
	s.flush_tombstones();
	disk::ExtentHeader header{};
	header.kind = disk::Kind::Blocks;
	header.nr = static_cast<uint16_t>(nr);
	header.block_bytes = block_bytes;
	auto place = s.segments.append(header.total_bytes(), true);
	if (place.segment == Location::kNone) {
		s.stats.nr_no_space++;
		return error(ENOSPC, "the store is full");
	}
	header.segment = place.segment;
	header.offset = place.offset;
	header.version = ++s.version;
	header.arena = arena;
	header.first = first;
	header.generation = generation;
	for (uint32_t i = 0; i < nr; i++)
		header.block_crc[i] = disk::block_crc(arena, first + i, generation, header.version,
						      {buffer.data + size_t{i} * block_bytes, block_bytes});
	s.seal_extent(header, s.buffer(buffer.index));

	StoreIo unit;
	unit.location = {place.segment, s.segments.add(header)};
	unit.extent = s.segments.extent(unit.location);
	unit.first_block = first;
	unit.seq = header.seq;
	unit.job = std::make_shared<StoreJob>();
	unit.job->completion = {tag, true, buffer, std::vector<int>(nr)};
	unit.job->nr_ios = 1;
	for (uint32_t i = 0; i < nr; i++) {
		Location location{place.segment, unit.location.slot + i};
		s.segments.set_live(location);
		auto &pending = s.pending[{arena, first + i}];
		if (pending.location) {
			s.segments.set_dead(pending.location);
			s.abandoned.insert({arena, first + i});
		}
		pending = {location, false};
	}
	unit.request = {true, 0, buffer.index, s.buffer(buffer.index), header.total_bytes(),
			s.offset_of(place.segment, place.offset), 0};
	s.submit(std::move(unit));
	return ok();
}

Result<> SpillStore::read(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes, Bounce buffer,
			  uint64_t tag)
{
	Impl &s = *impl_;

	if (auto checked = check_request(first, nr, block_bytes, s.options.extent_bytes); !checked)
		return checked;
	if (!s.is_buffer(buffer))
		return error(EINVAL, "not a buffer of this store");
	auto job = std::make_shared<StoreJob>();
	job->completion = {tag, false, buffer, std::vector<int>(nr, ENOENT)};
	for (uint32_t i = 0; i < nr;) {
		Location location = s.index.find({arena, first + i});
		uint32_t run = 1;
		if (location && s.segments.extent(location).block_bytes != block_bytes) {
			job->completion.results[i] = EBADMSG;
		} else if (location) {
			uint32_t extent = s.segments.block(location).extent;
			for (; i + run < nr; run++) {
				Location next = s.index.find({arena, first + i + run});
				if (next != Location{location.segment, location.slot + run} ||
				    s.segments.block(next).extent != extent)
					break;
			}
			s.queue_read(job, first + i, run, i, location);
		}
		i += run;
	}
	if (job->nr_ios == 0) {
		/* poll() hands it out; the caller may only poll when told to. */
		s.completions.push_back(std::move(job->completion));
		s.wake_caller();
	}
	return ok();
}

void SpillStore::commit(BlockKey key)
{
	Impl &s = *impl_;
	auto it = s.pending.find(key);

	if (it == s.pending.end() || !it->second.ready)
		return;
	Location old = s.index.set(key, it->second.location);
	if (old)
		s.segments.set_dead(old);
	s.pending.erase(it);
	s.abandoned.erase(key);
}

void SpillStore::abandon(BlockKey key)
{
	Impl &s = *impl_;
	auto it = s.pending.find(key);

	if (it == s.pending.end())
		return;
	s.segments.set_dead(it->second.location);
	s.pending.erase(it);
	s.abandoned.insert(key);
}

void SpillStore::drop(BlockKey key)
{
	Impl &s = *impl_;

	abandon(key);
	Location old = s.index.erase(key);
	if (old)
		s.segments.set_dead(old);
	bool left_over = s.abandoned.erase(key) > 0;
	if (!old && !left_over)
		return;
	disk::Tombstone *last = s.tombstones.empty() ? nullptr : &s.tombstones.back();
	if (last && last->arena == key.arena && last->version == s.version && last->nr != UINT32_MAX &&
	    last->first + last->nr == key.block)
		last->nr++;
	else
		s.tombstones.push_back({key.arena, s.version, key.block, 1});
	s.flush_tombstones();
}

void SpillStore::drop_arena(uint64_t arena)
{
	Impl &s = *impl_;

	for (BlockKey key : s.index.keys(arena, 0, UINT32_MAX))
		s.segments.set_dead(s.index.erase(key));
	std::erase_if(s.pending, [&](const auto &entry) {
		if (entry.first.arena == arena)
			s.segments.set_dead(entry.second.location);
		return entry.first.arena == arena;
	});
	std::erase_if(s.abandoned, [&](BlockKey key) { return key.arena == arena; });
	std::erase_if(s.tombstones, [&](const disk::Tombstone &t) { return t.arena == arena; });
	s.tombstones.push_back({arena, s.version, 0, UINT32_MAX});
	s.flush_tombstones();
}

bool SpillStore::contains(BlockKey key) const
{
	return static_cast<bool>(impl_->index.find(key));
}

int SpillStore::event_fd() const
{
	return impl_->io->event_fd();
}

std::vector<StoreCompletion> SpillStore::poll()
{
	impl_->reap();
	return std::exchange(impl_->completions, {});
}

uint32_t SpillStore::nr_in_flight() const
{
	return static_cast<uint32_t>(impl_->in_flight.size() + impl_->waiting.size() +
				     (impl_->tombstones.empty() ? 0 : 1));
}

Result<> SpillStore::sync()
{
	Impl &s = *impl_;

	s.flush_tombstones();
	while (nr_in_flight()) {
		pollfd waiter{s.io->event_fd(), POLLIN, 0};
		if (::poll(&waiter, 1, 100) < 0 && errno != EINTR)
			return sys_error("wait for the store");
		s.reap();
		if (s.in_flight.empty() && s.waiting.empty() && !s.tombstones.empty())
			return error(ENOSPC, "no room for the tombstones of dropped blocks");
	}
	if (!s.completions.empty())
		s.wake_caller();
	return s.file.flush();
}

StoreStats SpillStore::stats() const
{
	StoreStats stats = impl_->stats;

	stats.used_bytes = impl_->segments.live_bytes();
	stats.capacity_bytes = uint64_t{impl_->segments.size()} * impl_->segments.segment_bytes();
	stats.nr_records = impl_->index.size();
	return stats;
}

} // namespace cxlkv
