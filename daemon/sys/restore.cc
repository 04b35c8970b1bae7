/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/restore.h"

#include "sys/buffers.h"

#include <algorithm>
#include <utility>

namespace cxlkv {

Restorer::Restorer(SpillStore &store, Ledger &ledger, const FaultServerOptions &options)
    : store_(store), ledger_(ledger), options_(options),
      staging_(aligned_buffer(options.extent_bytes))
{
}

void Restorer::demand(ServedArena &served, uint32_t block)
{
	served.set_state(block, BlockState::Demanded);
	demanded_.push_back({&served, block, 1, now_ns()});
}

void Restorer::fetch(ServedArena &served, uint32_t block, uint64_t since_ns)
{
	served.set_state(block, BlockState::Queued);
	if (!fetched_.empty()) {
		Run &last = fetched_.back();
		if (last.served == &served && last.first + last.nr == block &&
		    last.since_ns == since_ns) {
			last.nr++;
			return;
		}
	}
	fetched_.push_back({&served, block, 1, since_ns});
}

void Restorer::fill(ServedArena &served, uint32_t block)
{
	served.set_state(block, BlockState::Filling);
	demanded_.push_back({&served, block, 1, now_ns()});
}

void Restorer::unqueue(ServedArena &served, uint32_t block)
{
	if (served.state(block) == BlockState::Queued)
		served.set_state(block, BlockState::Cold);
}

void Restorer::forget(ServedArena &served)
{
	for (uint32_t block = 0; block < served.nr_blocks(); block++)
		if (waits(served.state(block)))
			served.set_state(block, BlockState::Cold);
	auto ours = [&](const Run &run) { return run.served == &served; };

	std::erase_if(demanded_, ours);
	std::erase_if(fetched_, ours);
	std::erase_if(retries_, ours);
}

void Restorer::pump()
{
	retry_due();
	while (start_next(demanded_, true))
		;
	while (start_next(fetched_, false))
		;
}

bool Restorer::start_next(std::deque<Run> &queue, bool urgent)
{
	while (!queue.empty()) {
		Run run = next_run(queue.front());
		if (!queue.front().nr)
			queue.pop_front();
		if (!run.nr)
			continue;
		uint64_t bytes = uint64_t{run.nr} * run.served->block_bytes();
		bool fits = urgent || !reading_bytes_ ||
			    reading_bytes_ + bytes <= options_.max_restore_bytes;
		Bounce buffer = !fits    ? Bounce()
				: urgent ? store_.take_buffer()
					 : take_spare_buffer(store_);
		if (!buffer.data) {
			queue.push_front(run);
			return false;
		}
		start(urgent ? widen(run) : run, buffer);
		return true;
	}
	return false;
}

/*
 * Cuts the first blocks that still wait off a queue entry, at most one extent;
 * those before them went with somebody else's read, or were taken back.
 */
Restorer::Run Restorer::next_run(Run &from) const
{
	ServedArena &served = *from.served;
	uint32_t most = options_.extent_bytes / served.block_bytes();
	auto take = [&from](uint32_t nr) {
		from.first += nr;
		from.nr -= nr;
	};

	while (from.nr && !waits(served.state(from.first)) &&
	       served.state(from.first) != BlockState::Filling)
		take(1);
	Run run{&served, from.first, 0, from.since_ns};
	if (from.nr && served.state(from.first) == BlockState::Filling)
		run.nr = 1; /* on its own: it is copied another way */
	while (run.nr < std::min(from.nr, most) && waits(served.state(run.first + run.nr)))
		run.nr++;
	take(run.nr);
	return run;
}

/* Takes queued neighbours within the same extent along: their bytes come with the same I/O. */
Restorer::Run Restorer::widen(Run run) const
{
	ServedArena &served = *run.served;
	uint32_t most = options_.extent_bytes / served.block_bytes();
	uint32_t begin = run.first / most * most;
	uint32_t end = std::min(begin + most, served.nr_blocks());

	if (served.state(run.first) == BlockState::Filling)
		return run;
	while (run.first > begin && waits(served.state(run.first - 1)))
		run.first--, run.nr++;
	while (run.first + run.nr < end && waits(served.state(run.first + run.nr)))
		run.nr++;
	return run;
}

void Restorer::start(Run run, Bounce buffer)
{
	ServedArena &served = *run.served;
	uint64_t tag = next_tag_++;
	uint32_t nr_demanded = 0;

	for (uint32_t block = run.first; block < run.first + run.nr; block++) {
		nr_demanded += served.state(block) == BlockState::Demanded;
		if (waits(served.state(block)))
			served.set_state(block, BlockState::Reading);
	}
	ledger_.stats.nr_demand_restored += nr_demanded;
	auto begun =
		store_.read(served.key(), run.first, run.nr, served.block_bytes(), buffer, tag);
	if (!begun) {
		log_error("restore of arena {}: {}", served.arena().options.number,
			  begun.error().what);
		store_.give_buffer(buffer);
		back_off(run);
		return;
	}
	served.nr_in_flight++;
	reading_bytes_ += uint64_t{run.nr} * served.block_bytes();
	reads_.emplace(tag, Read{run, buffer, nr_demanded});
}

void Restorer::complete(StoreCompletion &&completion)
{
	auto it = reads_.find(completion.tag);
	if (it == reads_.end())
		return;
	Read read = it->second;
	reads_.erase(it);
	Run &run = read.run;
	run.served->nr_in_flight--;
	reading_bytes_ -= uint64_t{run.nr} * run.served->block_bytes();

	auto raw = [&](uint32_t i) {
		return i < run.nr && !completion.results[i] && !completion.blocks[i].format;
	};
	for (uint32_t i = 0; i < run.nr;) {
		uint32_t nr = 0;
		while (raw(i + nr))
			nr++;
		const std::byte *from = read.buffer.data + run.served->arena().offset(i);
		if (!nr) {
			nr = decode(read, completion, i);
			from = staging_.get();
		}
		if (nr)
			put_in_place(read, run.first + i, nr, from);
		else
			lose(*run.served, run.first + i);
		i += std::max(nr, 1u);
	}
	store_.give_buffer(read.buffer);
}

/* Decodes adjacent blocks, from the i-th on; returns how many. */
uint32_t Restorer::decode(const Read &read, const StoreCompletion &completion, uint32_t i)
{
	ServedArena &served = *read.run.served;
	uint32_t nr = 0;

	for (; i + nr < read.run.nr && !completion.results[i + nr]; nr++) {
		const StoredBlock &block = completion.blocks[i + nr];
		if (!block.format)
			break;
		if (!served.codec().decode(static_cast<ColdFormat>(block.format),
					   {read.buffer.data + block.at, block.bytes},
					   staging_.get() + served.arena().offset(nr))) {
			if (!nr)
				ledger_.stats.nr_unknown_format++;
			break;
		}
	}
	return nr;
}

/* Verified bytes for adjacent blocks. */
void Restorer::put_in_place(Read &read, uint32_t first, uint32_t nr, const std::byte *from)
{
	ServedArena &served = *read.run.served;

	int err = copy_in(served, first, nr, from);
	if (err == ENOMEM) {
		back_off({&served, first, nr, read.run.since_ns});
		return;
	}
	if (err) {
		/* Nobody is left to fault on it. What the store has stays until the arena is
		 * detached. */
		for (uint32_t block = first; block < first + nr; block++)
			served.set_state(block, BlockState::Cold);
		served.set_gone();
		return;
	}
	served.wake(first, nr);
	ledger_.stats.nr_restored += nr;
	ledger_.stats.restored_bytes += uint64_t{nr} * served.block_bytes();
	const uint64_t now = now_ns(), took = now - read.run.since_ns;
	ledger_.times.restore_ns.add(took, nr);
	if (uint32_t nr_demanded = std::exchange(read.nr_demanded, 0))
		ledger_.times.stall_ns.add(took, nr_demanded);
	for (uint32_t block = first; block < first + nr; block++)
		if (uint64_t left = served.left_ns(block))
			ledger_.times.reuse_gap_ns.add(read.run.since_ns -
						       std::min(left, read.run.since_ns));
}

/*
 * Blocks come back write-protected, so that one the client never writes can be
 * spilled again without a write. A page that is there already is right in a
 * half-filled block, and anywhere else a stray one that must not be served.
 */
int Restorer::copy_in(ServedArena &served, uint32_t first, uint32_t nr, const std::byte *from)
{
	bool filling = served.state(first) == BlockState::Filling;
	uint64_t nr_existing = 0;

	int err = served.copy_in(first, nr, from, !filling, &nr_existing);
	bool clean = !filling && !nr_existing;
	if (!err && nr_existing && !filling)
		err = served.overwrite(first, nr, from);
	if (!err && !clean)
		err = served.unprotect(first, nr);
	if (err)
		return err;
	for (uint32_t block = first; block < first + nr; block++)
		served.set_state(block, clean ? BlockState::Clean : BlockState::Resident);
	return 0;
}

void Restorer::lose(ServedArena &served, uint32_t block)
{
	uint64_t skipped = 0;

	store_.drop({served.key(), block});
	served.set_state(block, BlockState::Lost);
	ledger_.stats.nr_lost++;
	if (complaint_.allow(&skipped))
		log_warning(
			"arena {}: block {} could not be restored and is lost; {} more not shown",
			served.arena().options.number, block, skipped);
	served.poison(block);
}

/* The system had no memory for the pages; threads may be blocked on them, so it is tried again. */
void Restorer::back_off(Run run)
{
	for (uint32_t block = run.first; block < run.first + run.nr; block++)
		if (run.served->state(block) != BlockState::Filling)
			run.served->set_state(block, BlockState::Demanded);
	if (retries_.empty())
		retry_at_ns_ = now_ns() + retry_ns;
	retries_.push_back(run);
}

void Restorer::retry_due()
{
	if (retries_.empty() || now_ns() < retry_at_ns_)
		return;
	demanded_.insert(demanded_.end(), retries_.begin(), retries_.end());
	retries_.clear();
}

} // namespace cxlkv
