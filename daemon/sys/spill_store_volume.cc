/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opening a volume, its upkeep, and what happens to single records. */
#include "sys/spill_store_volume.h"

#include "sys/spill_store_checkpointer.h"
#include "sys/spill_store_cleaner.h"
#include "sys/spill_store_super.h"
#include "sys/spill_store_wiper.h"

#include <algorithm>
#include <sys/random.h>
#include <utility>

namespace cxlkv {

StoreVolume::StoreVolume(const StoreOptions &o) : options(o) {}

StoreVolume::~StoreVolume() = default;

Result<std::unique_ptr<StoreVolume>> StoreVolume::open(const StoreOptions &options,
						       const std::string &path, uint32_t number,
						       uint32_t nr_files, uint64_t set_id)
{
	std::unique_ptr<StoreVolume> volume(new StoreVolume(options));
	auto opened = volume->open_file(path, set_id, number, nr_files);

	if (!opened)
		return opened.error();
	volume->file_index = number;
	volume->segments.set_wiping(options.wipe != StoreOptions::Wipe::None);
	return volume;
}

namespace {

/* The file must be the one that the options list in this place. */
Result<> check_place(const disk::Superblock &super, const StoreFile &file, uint64_t set_id,
		     uint32_t number, uint32_t nr_files)
{
	if (super.nr_files != nr_files)
		return error(EINVAL,
			     fmt::format("{}: one of {} files of a store, but {} are listed",
					 file.path(), super.nr_files, nr_files));
	if (super.file != number)
		return error(EINVAL, fmt::format("{}: file {} of its store, but listed as file {}",
						 file.path(), super.file + 1, number + 1));
	if (set_id && super.set_id != set_id)
		return error(EINVAL,
			     file.path() + ": belongs to another store than the other files");
	return ok();
}

/*
 * Of whole_bytes, all files together as the setting says it; 0: a device is smaller than its part.
 * extent_bytes: the longest ones that a new store was to have; 0: a store that is there.
 */
Error too_small(const disk::Superblock &super, const std::string &path, uint64_t bytes,
		uint64_t whole_bytes, uint32_t extent_bytes)
{
	uint64_t least = super.log_offset() + kMinSegments * super.segment_bytes;
	std::string what = extent_bytes ? fmt::format("a store with extents of {}", extent_bytes)
					: "this store";
	std::string otherwise = extent_bytes ? "" : " or remove it";

	if (!whole_bytes || super.nr_files == 1)
		return error(EINVAL, fmt::format("{}: {} bytes are too small for {}; give it at "
						 "least {}{}",
						 path, bytes, what, least, otherwise));
	return error(EINVAL, fmt::format("{}: one of {} files, {} bytes together, which are too "
					 "small for {}; give them at least {}{}",
					 path, super.nr_files, whole_bytes, what,
					 least * super.nr_files, otherwise));
}

} // namespace

Result<> StoreVolume::open_file(const std::string &path, uint64_t set_id, uint32_t number,
				uint32_t nr_files)
{
	auto opened = StoreFile::open(path);
	if (!opened)
		return opened.error();
	file = std::move(*opened);
	/* Judge what is there before changing its size. */
	auto found = load_super(file);
	if (!found)
		return found.error();
	uint64_t cap = options.size_bytes / nr_files / disk::kPage * disk::kPage;
	uint64_t bytes = file.usable(cap), there = file.size();
	bool fresh = !*found;
	if (fresh) {
		super = plan_super(bytes, options.extent_bytes);
		super.file = number;
		super.nr_files = nr_files;
		super.set_id = set_id;
		if (!set_id &&
		    getrandom(&super.set_id, sizeof(super.set_id), 0) != sizeof(super.set_id))
			return sys_error("getrandom");
	} else {
		super = **found;
		if (auto placed = check_place(super, file, set_id, number, nr_files); !placed)
			return placed;
	}
	uint32_t nr = segments_in(bytes, super);
	if (nr < kMinSegments)
		return too_small(super, path, bytes, bytes == cap ? options.size_bytes : 0,
				 fresh ? options.extent_bytes : 0);
	if (super.segment_bytes < options.extent_bytes + 2 * disk::kPage)
		return error(
			EINVAL,
			fmt::format(
				"{}: made for extents of at most {} bytes, not {}; remove it or "
				"lower the extent size",
				path, super.segment_bytes - 2 * disk::kPage, options.extent_bytes));
	/* Not before it has proved to be ours. */
	if (auto closed = file.close_to_others(); !closed)
		return closed;
	/* shrink() cuts it, once what lies behind the cap is safe. */
	if (auto reserved = file.reserve(cap); !reserved)
		return reserved;
	if (fresh) {
		if (auto made = format(file, super, bytes); !made)
			return made;
	}
	cap_bytes_ = cap;
	cap_segments_ = nr;
	return recover_log(nr, std::max(nr, segments_in(there, super)), bytes);
}

Result<> StoreVolume::recover_log(uint32_t nr_segments, uint32_t nr_there, uint64_t bytes)
{
	auto recovered = recover(file, super, nr_segments, nr_there);

	if (!recovered && recovered.error().code == EBADMSG) {
		log_error("{}: {}; all its blocks count as lost", file.path(),
			  recovered.error().what);
		stats.nr_checksum_failures++;
		if (auto made = format(file, super, bytes); !made)
			return made;
		recovered = recover(file, super, nr_segments, nr_there);
	}
	if (!recovered)
		return recovered.error();
	segments = std::move(recovered->table);
	index = std::move(recovered->index);
	position = recovered->position;
	if (options.wipe != StoreOptions::Wipe::Secure)
		segments.cancel_evacuation();
	else
		segments.evacuate(recovered->tombstones);
	if (recovered->nr_cut)
		log_warning("{}: was truncated, {} blocks behind its end are lost", file.path(),
			    recovered->nr_cut);
	if (index.size())
		log_info("{}: {} blocks recovered, {} extents from the log", file.path(),
			 index.size(), recovered->nr_replayed);
	return ok();
}

void StoreVolume::start(IoQueue &q, uint32_t first_inner)
{
	queue = &q;
	position.in_flight_bytes = 2 * (options.nr_buffers + kInnerBuffers) * q.buffer_bytes() +
				   disk::kNrEnds * super.segment_bytes;
	tombstone_buffer_ = q.inner(first_inner);
	checkpointer_ = std::make_unique<StoreCheckpointer>(*this, q.inner(first_inner + 1));
	cleaner_ = std::make_unique<StoreCleaner>(*this, q.inner(first_inner + 2));
	wiper_ = std::make_unique<StoreWiper>(*this, q.inner(first_inner + 3));
	/* What was recovered from the log is now in a checkpoint, and the log goes on from there.
	 */
	request_checkpoint();
}

void StoreVolume::pump()
{
	/* Not more often than tombstones are written: it looks at every extent. */
	if (!tombstones_in_flight_)
		evacuate_dropped();
	flush_tombstones();
	checkpointer_->pump();
	cleaner_->pump();
	wiper_->pump();
}

void StoreVolume::request_checkpoint()
{
	checkpointer_->request();
	checkpointer_->pump();
}

bool StoreVolume::settled() const
{
	return tombstones_.empty() && !checkpointer_->wanted();
}

void StoreVolume::add_stats(StoreStats &total) const
{
	total.used_bytes += segments.live_bytes();
	total.capacity_bytes += uint64_t{segments.size()} * segments.segment_bytes();
	total.unwiped_bytes += segments.unwiped_bytes();
	total.unwiped_bytes += newly_dropped_ ? segments.segment_bytes() : 0; /* at least */
	total.nr_records += index.size();
	total.user_bytes += stats.user_bytes;
	total.written_bytes += stats.written_bytes;
	total.read_bytes += stats.read_bytes;
	total.cleaned_bytes += stats.cleaned_bytes;
	total.nr_checkpoints += stats.nr_checkpoints;
	total.nr_evicted += stats.nr_evicted;
	total.nr_checksum_failures += stats.nr_checksum_failures;
	total.nr_io_errors += stats.nr_io_errors;
	total.nr_no_space += stats.nr_no_space;
}

bool StoreVolume::failing() const
{
	return failed_seq || checkpointer_->failed();
}

void StoreVolume::complain(const char *what, int code)
{
	uint64_t skipped;

	if (limit_.allow(&skipped))
		log_warning("{}: {}: {}{}", file.path(), what, strerror(code),
			    skipped ? fmt::format(" ({} more like it)", skipped) : "");
}

void StoreVolume::commit(BlockKey key)
{
	auto it = pending.find(key);

	if (it == pending.end() || !it->second.ready)
		return;
	Location old = index.set(key, it->second.location);
	if (old)
		segments.set_dead(old);
	pending.erase(it);
	abandoned_.erase(key);
}

void StoreVolume::abandon(BlockKey key)
{
	auto it = pending.find(key);

	if (it == pending.end())
		return;
	segments.set_dead(it->second.location);
	pending.erase(it);
	abandoned_.insert(key);
}

void StoreVolume::drop(BlockKey key)
{
	abandon(key);
	Location old = index.erase(key);
	if (old)
		segments.set_dead(old);
	bool left_over = abandoned_.erase(key) > 0;
	if (!old && !left_over)
		return;
	disk::Tombstone *last = tombstones_.empty() ? nullptr : &tombstones_.back();
	if (last && last->arena == key.arena && last->version == position.version &&
	    last->nr != UINT32_MAX && last->first + last->nr == key.block)
		last->nr++;
	else
		tombstones_.push_back({key.arena, position.version, key.block, 1});
	newly_dropped_ = options.wipe == StoreOptions::Wipe::Secure;
	/* From poll(): what is dropped together is written together. */
	queue->wake();
}

void StoreVolume::lose(Location location)
{
	const BlockKey key = segments.key(location);
	const uint64_t version = segments.extent(location).version;
	auto it = pending.find(key);

	if (it != pending.end() && it->second.location == location)
		pending.erase(it);
	if (index.find(key) == location)
		index.erase(key);
	segments.set_dead(location);
	tombstones_.push_back({key.arena, version, key.block, 1});
	newly_dropped_ = options.wipe == StoreOptions::Wipe::Secure;
	queue->wake();
}

void StoreVolume::drop_arena(uint64_t arena)
{
	for (BlockKey key : index.keys(arena, 0, UINT32_MAX))
		segments.set_dead(index.erase(key));
	std::erase_if(pending, [&](const auto &entry) {
		if (entry.first.arena == arena)
			segments.set_dead(entry.second.location);
		return entry.first.arena == arena;
	});
	std::erase_if(abandoned_, [&](BlockKey key) { return key.arena == arena; });
	std::erase_if(tombstones_, [&](const disk::Tombstone &t) { return t.arena == arena; });
	tombstones_.push_back({arena, position.version, 0, UINT32_MAX});
	newly_dropped_ = options.wipe == StoreOptions::Wipe::Secure;
	queue->wake();
	if (newly_dropped_) {
		request_checkpoint();
		pump();
	}
}

void StoreVolume::evacuate_dropped()
{
	if (std::exchange(newly_dropped_, false))
		segments.evacuate({tombstones_.begin(), tombstones_.end()});
}

} // namespace cxlkv
