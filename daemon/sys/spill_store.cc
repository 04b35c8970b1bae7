/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store's interface: spreads requests over its files and collects their completions. */
#include "sys/spill_store.h"

#include "sys/spill_store_rate.h"
#include "sys/spill_store_super.h"
#include "sys/spill_store_volume.h"

#include <algorithm>
#include <cstring>

namespace cxlkv {

namespace {

/* A write() or read() of the caller: complete when all its parts are. */
struct Job {
	StoreCompletion completion;
	uint32_t nr_parts = 0;
	/* Of a write in two extents: what the second one holds, and where the caller looks for it.
	 */
	Bounce rest;
	std::byte *rest_at = nullptr;
	size_t rest_bytes = 0;
};

/* Blocks of so many in a row belong to the same file. */
constexpr uint32_t kGroupBlocks = 1024;

Result<> check_options(const StoreOptions &o)
{
	if (o.extent_bytes == 0 || o.extent_bytes % disk::kPage || o.extent_bytes > (16u << 20))
		return error(EINVAL, fmt::format("extent_bytes {}: a multiple of 4096 up to 16 MiB",
						 o.extent_bytes));
	if (o.queue_depth == 0 || o.queue_depth > 1024 || o.nr_buffers == 0 || o.nr_buffers > 4096)
		return error(EINVAL, "queue_depth must be 1 to 1024, nr_buffers 1 to 4096");
	return ok();
}

/* Errors of one file that must stop the start, not only cost that file's blocks. */
bool is_refusal(int code)
{
	return code == EBUSY || code == EPROTONOSUPPORT || code == EINVAL || code == EACCES ||
	       code == EPERM || code == ENOSPC;
}

/* Of the first file that has one: any of them may have been replaced. 0: they are all new. */
uint64_t known_set_id(const std::vector<std::string> &paths)
{
	for (const std::string &path : paths) {
		auto file = StoreFile::open_readonly(path);
		auto super = file ? load_super(*file) : Result(std::optional<disk::Superblock>());
		if (super && *super)
			return (*super)->set_id;
	}
	return 0;
}

} // namespace

struct SpillStore::Impl {
	StoreOptions options;
	std::vector<std::unique_ptr<StoreVolume>> volumes; /* null: could not be opened */
	std::vector<StoreCompletion> completions;
	WriteRate rate;
	uint64_t nr_throttled = 0;
	bool polling = false;
	std::unique_ptr<IoQueue> queue; /* last: its handlers use all above */

	explicit Impl(const StoreOptions &o) : options(o), rate(o.write_bytes_per_s) {}
	Result<> open_volumes();
	Result<> check_request(const BlockRun &run, Bounce buffer) const;
	/* Writes nr blocks of the run, from that one on, which one file takes. */
	Result<> write_part(const std::shared_ptr<Job> &job, BlockRun run, Bounce buffer,
			    uint32_t from, uint32_t nr, const Fill &fill);
	/* Writes what the job has in its other buffer, from block together on. */
	void write_rest(const std::shared_ptr<Job> &job, const BlockRun &run, uint32_t together,
			const Fill &fill);

	[[nodiscard]] size_t volume_of(BlockKey key) const
	{
		uint64_t x = key.arena ^ (key.block / kGroupBlocks * 0x9e3779b97f4a7c15);
		x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9;
		return (x >> 32) % volumes.size();
	}
	/* Blocks from there on that the volume of the first one has too. */
	[[nodiscard]] uint32_t blocks_together(BlockKey key, uint32_t nr) const
	{
		return volumes.size() == 1 ? nr
					   : std::min(nr, kGroupBlocks - key.block % kGroupBlocks);
	}
	void finish_part(const std::shared_ptr<Job> &job)
	{
		if (--job->nr_parts == 0) {
			if (job->rest.data) {
				memcpy(job->rest_at, job->rest.data, job->rest_bytes);
				queue->give(job->rest);
			}
			completions.push_back(std::move(job->completion));
			/* poll() hands out what completes in it: a wake-up would cost four system
			 * calls. */
			if (!polling)
				queue->wake();
		}
	}
};

SpillStore::SpillStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

SpillStore::~SpillStore()
{
	if (auto done = sync(); !done)
		log_warning("closing the store: {}", done.error().what);
}

Result<std::unique_ptr<SpillStore>> SpillStore::open(const StoreOptions &options,
						     const IoWrapper &wrap)
{
	if (auto checked = check_options(options); !checked)
		return checked.error();
	auto impl = std::make_unique<Impl>(options);
	if (auto opened = impl->open_volumes(); !opened)
		return opened.error();
	std::vector<int> files;
	for (auto &volume : impl->volumes) {
		files.push_back(volume ? volume->file.fd() : -1);
		/* Blocks from a time of longer extents must fit into the cleaner's buffer. */
		if (volume)
			impl->options.extent_bytes = std::max(impl->options.extent_bytes,
							      volume->segments.largest_block());
	}
	auto nr = static_cast<uint32_t>(files.size());
	auto queue = IoQueue::create(impl->options, files, nr * StoreVolume::kInnerBuffers, wrap);
	if (!queue)
		return queue.error();
	impl->queue = std::move(*queue);
	for (uint32_t i = 0; i < nr; i++) {
		if (impl->volumes[i])
			impl->volumes[i]->start(*impl->queue, i * StoreVolume::kInnerBuffers);
	}
	for (auto &volume : impl->volumes) {
		if (!volume)
			continue;
		if (auto shrunk = volume->shrink(); !shrunk)
			return shrunk.error();
	}
	return std::unique_ptr<SpillStore>(new SpillStore(std::move(impl)));
}

Result<> SpillStore::Impl::open_volumes()
{
	std::vector<std::string> paths = options.more_paths;
	paths.insert(paths.begin(), options.path);
	auto nr = static_cast<uint32_t>(paths.size());
	uint64_t set_id = nr > 1 ? known_set_id(paths) : 0;
	Error last;
	bool any = false;

	for (uint32_t i = 0; i < nr; i++) {
		auto opened = StoreVolume::open(options, paths[i], i, nr, set_id);
		if (!opened && (nr == 1 || is_refusal(opened.error().code)))
			return opened.error();
		if (!opened) {
			last = opened.error();
			log_error("{}; going on without it, its blocks are lost", last.what);
			volumes.push_back(nullptr);
			continue;
		}
		set_id = (*opened)->super.set_id;
		any = true;
		volumes.push_back(std::move(*opened));
	}
	return any ? ok() : Result<>(last.in("none of the store's files could be opened"));
}

Result<> SpillStore::Impl::check_request(const BlockRun &run, Bounce buffer) const
{
	if (run.nr == 0 || run.nr > disk::kMaxBlocks || run.block_bytes == 0 ||
	    run.block_bytes % disk::kPage ||
	    uint64_t{run.nr} * run.block_bytes > options.extent_bytes ||
	    run.first + (run.nr - 1) < run.first)
		return error(
			EINVAL,
			fmt::format("{} blocks of {} bytes do not fit into an extent of {} bytes",
				    run.nr, run.block_bytes, options.extent_bytes));
	return queue->owns(buffer) ? ok() : Result<>(error(EINVAL, "not a buffer of this store"));
}

Result<> SpillStore::Impl::write_part(const std::shared_ptr<Job> &job, BlockRun run, Bounce buffer,
				      uint32_t from, uint32_t nr, const Fill &fill)
{
	run.first += from;
	run.nr = nr;
	auto &volume = volumes[volume_of({run.arena, run.first})];
	if (!volume)
		return error(EIO, "the file that these blocks belong to could not be opened");
	auto queued = volume->write(
		run, buffer.index,
		fill ? [&](uint32_t i, uint32_t n, std::byte *to) { return fill(from + i, n, to); }
		     : Fill{},
		[job, from](uint32_t i, int error, StoredBlock) {
			job->completion.results[from + i] = error;
		},
		[this, job] { finish_part(job); });
	job->nr_parts += queued ? 1 : 0;
	return queued;
}

void SpillStore::Impl::write_rest(const std::shared_ptr<Job> &job, const BlockRun &run,
				  uint32_t together, const Fill &fill)
{
	auto queued = job->rest.data
			      ? write_part(job, run, job->rest, together, run.nr - together, fill)
			      : Result<>(error(EAGAIN, "no free buffer"));

	if (!queued)
		std::fill(job->completion.results.begin() + together, job->completion.results.end(),
			  queued.error().code);
}

Bounce SpillStore::take_buffer()
{
	return impl_->queue->take();
}

void SpillStore::give_buffer(Bounce buffer)
{
	impl_->queue->give(buffer);
}

Result<> SpillStore::write(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes,
			   uint32_t generation, Bounce buffer, uint64_t tag, uint32_t format,
			   const Fill &fill)
{
	Impl &s = *impl_;
	BlockRun run{arena, first, nr, block_bytes, generation, format};

	if (auto checked = s.check_request(run, buffer); !checked)
		return checked;
	if (!s.rate.allows(uint64_t{nr} * block_bytes)) {
		s.nr_throttled++;
		return error(EAGAIN, "over the write rate");
	}
	auto job = std::make_shared<Job>();
	job->completion = {tag, true, buffer, std::vector<int>(nr, EIO), {}};
	job->nr_parts = 1; /* this function */
	uint32_t together = s.blocks_together({arena, first}, nr);
	bool other_file = together < nr;
	if (auto &volume = s.volumes[s.volume_of({arena, first})]; volume && !other_file)
		together = volume->fitting(run);
	/*
	 * An extent lies in one buffer between its header and its trailer: what belongs
	 * to the next segment or file needs a buffer of its own, before the trailer
	 * overwrites it.
	 */
	if (together < nr)
		job->rest = s.queue->take();
	if (!job->rest.data && !other_file)
		together = nr;
	job->rest_at = buffer.data + size_t{together} * block_bytes;
	job->rest_bytes = size_t{nr - together} * block_bytes;
	if (job->rest.data && !fill)
		memcpy(job->rest.data, job->rest_at, job->rest_bytes);
	if (auto queued = s.write_part(job, run, buffer, 0, together, fill); !queued) {
		if (job->rest.data)
			s.queue->give(job->rest);
		return queued;
	}
	if (together < nr)
		s.write_rest(job, run, together, fill);
	s.rate.take(uint64_t{nr} * block_bytes);
	s.finish_part(job);
	return ok();
}

Result<> SpillStore::read(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes,
			  Bounce buffer, uint64_t tag)
{
	Impl &s = *impl_;
	auto job = std::make_shared<Job>();

	if (auto checked = s.check_request({arena, first, nr, block_bytes}, buffer); !checked)
		return checked;
	job->completion = {tag, false, buffer, std::vector<int>(nr, EIO),
			   std::vector<StoredBlock>(nr)};
	job->nr_parts = 1; /* this function */
	for (uint32_t i = 0; i < nr;) {
		BlockKey key{arena, first + i};
		uint32_t part = s.blocks_together(key, nr - i);
		auto &volume = s.volumes[s.volume_of(key)];
		if (volume)
			job->nr_parts += volume->read(
				{arena, key.block, part, block_bytes}, buffer.index,
				buffer.data + size_t{i} * block_bytes,
				[job, i, at = i * block_bytes](uint32_t n, int error,
							       StoredBlock stored) {
					stored.at += at;
					job->completion.results[i + n] = error;
					job->completion.blocks[i + n] = stored;
				},
				[&s, job] { s.finish_part(job); });
		i += part;
	}
	s.finish_part(job);
	return ok();
}

void SpillStore::commit(BlockKey key)
{
	if (auto &volume = impl_->volumes[impl_->volume_of(key)])
		volume->commit(key);
}

void SpillStore::abandon(BlockKey key)
{
	if (auto &volume = impl_->volumes[impl_->volume_of(key)])
		volume->abandon(key);
}

void SpillStore::drop(BlockKey key)
{
	if (auto &volume = impl_->volumes[impl_->volume_of(key)])
		volume->drop(key);
}

void SpillStore::drop_arena(uint64_t arena)
{
	for (auto &volume : impl_->volumes) {
		if (volume)
			volume->drop_arena(arena);
	}
}

std::set<uint64_t> SpillStore::arenas() const
{
	std::set<uint64_t> arenas;

	for (auto &volume : impl_->volumes)
		if (volume)
			for (uint64_t arena : volume->index.arenas())
				arenas.insert(arena);
	return arenas;
}

bool SpillStore::contains(BlockKey key) const
{
	auto &volume = impl_->volumes[impl_->volume_of(key)];

	return volume && volume->contains(key);
}

int SpillStore::event_fd() const
{
	return impl_->queue->event_fd();
}

std::vector<StoreCompletion> SpillStore::poll()
{
	impl_->polling = true;
	impl_->queue->collect();
	/* Not all at once: the caller copies what was just verified while a cache has it. */
	while (impl_->completions.empty() && impl_->queue->handle_one())
		;
	for (auto &volume : impl_->volumes) {
		if (volume)
			volume->pump();
	}
	impl_->polling = false;
	if (impl_->queue->has_ready())
		impl_->queue->wake();
	return std::exchange(impl_->completions, {});
}

uint32_t SpillStore::nr_in_flight() const
{
	auto nr = static_cast<uint32_t>(impl_->queue->nr_in_flight());

	for (auto &volume : impl_->volumes)
		nr += volume && !volume->settled();
	return nr;
}

Result<> SpillStore::sync()
{
	Impl &s = *impl_;
	bool settled = false;
	uint32_t idle = 0;

	for (auto &volume : s.volumes) {
		if (volume)
			volume->request_checkpoint();
	}
	while (!settled) {
		s.queue->reap();
		settled = true;
		for (auto &volume : s.volumes) {
			if (!volume)
				continue;
			volume->pump();
			if (volume->failing() && !s.queue->nr_in_flight())
				return error(EIO, volume->file.path() +
							  ": the device fails; the next "
							  "start searches the log");
			settled = settled && volume->settled();
		}
		settled = settled && s.queue->nr_in_flight() == 0;
		/* Tombstones that find no room wait for the cleaner, which may find none either. */
		idle = s.queue->nr_in_flight() ? 0 : idle + 1;
		if (!settled && idle > 20)
			return error(ENOSPC, "no room for the tombstones of dropped blocks");
		if (!settled)
			s.queue->wait();
	}
	if (!s.completions.empty())
		s.queue->wake();
	return ok();
}

StoreStats SpillStore::stats() const
{
	StoreStats total;

	for (auto &volume : impl_->volumes) {
		if (volume)
			volume->add_stats(total);
	}
	total.nr_throttled = impl_->nr_throttled;
	return total;
}

} // namespace cxlkv
