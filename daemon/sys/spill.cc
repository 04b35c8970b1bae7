/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The order is the protocol: protect, check leases, copy, write, drain events,
 * check leases, punch while still protected, verify the hole, record, un-protect. A write of
 * the client during all this is a blocked thread, not data, until the last
 * step; then it faults again on the hole and lands after a restore.
 */
#include "sys/spill.h"

#include "sys/buffers.h"

#include <algorithm>
#include <cstring>

namespace cxlkv {

Spiller::Spiller(SpillStore &store, Ledger &ledger, const FaultServerOptions &options,
		 std::function<void(ServedArena &)> drain, std::function<void(JobPtr)> on_done)
    : store_(store), ledger_(ledger), options_(options), drain_(std::move(drain)),
      on_done_(std::move(on_done)), staging_(aligned_buffer(options.extent_bytes))
{
}

bool Spiller::pump()
{
	for (uint32_t i = 0; i < max_starts; i++) {
		if (!rests_.empty() && in_flight_.size() < options_.max_spills) {
			if (!start_rest())
				return false;
			continue;
		}
		if (queue_.empty() || in_flight_.size() >= options_.max_spills)
			return false;
		JobPtr job = queue_.front();
		Bounce buffer = take_spare_buffer(store_);
		if (!buffer.data)
			return false; /* until a completion */
		job->nr_open++;       /* keeps the job while it starts */
		start(job, buffer);
		if (job->at_end())
			queue_.pop_front();
		release(job);
	}
	return true;
}

void Spiller::release(const JobPtr &job)
{
	if (!--job->nr_open && job->at_end())
		on_done_(job);
}

/*
 * Claims the next run of blocks that can leave together: from the cursor, all
 * clean or all not, at most one extent. Blocks that cannot are counted and
 * passed over. False: the job has no more.
 */
bool Spiller::claim_run(Spill &spill)
{
	Job &job = *spill.job;
	ServedArena &served = *job.served;
	uint32_t most = options_.extent_bytes / served.block_bytes();

	while (!job.at_end()) {
		uint32_t block = job.block();
		bool clean = served.state(block) == BlockState::Clean;
		bool fits = !spill.nr || (block == spill.first + spill.nr && clean == spill.clean &&
					  spill.nr < most);
		if (!fits)
			break;
		job.advance(1);
		bool here = clean || served.state(block) == BlockState::Resident;
		bool mine = here && served.arena().try_busy(block);
		if (mine && served.try_spilling(block)) {
			if (!spill.nr)
				spill.first = block, spill.clean = clean;
			spill.nr++;
			continue;
		}
		if (mine)
			served.arena().clear_busy(block);
		if (here)
			ledger_.stats.nr_spill_refused++;
		if (spill.nr)
			break;
	}
	return spill.nr;
}

void Spiller::start(const JobPtr &job, Bounce buffer)
{
	Spill spill;
	spill.job = job;
	spill.buffer = buffer;

	if (job->served->gone() || job->served->leaving) {
		job->fail(ESRCH, job->at_end() ? 0 : job->block());
		job->extent = job->request.extents.size();
	}
	if (!claim_run(spill)) {
		store_.give_buffer(buffer);
		return;
	}
	job->nr_open++;
	spill.since_ns = now_ns();
	int err = job->served->protect(spill.first, spill.nr);
	give_up_leased(spill);
	if (err) {
		job->fail(err == ENOENT ? ESRCH : err, spill.first);
		abort_all(spill, ledger_.stats.nr_spill_failed);
		end(spill);
		return;
	}
	copy_and_write(std::move(spill));
}

/* False: no buffer, until a completion. */
bool Spiller::start_rest()
{
	Bounce buffer = take_spare_buffer(store_);
	if (!buffer.data)
		return false;
	Spill spill = std::move(rests_.front());
	rests_.pop_front();
	spill.buffer = buffer;
	copy_and_write(std::move(spill));
	return true;
}

/* The blocks from nr on become a spill of their own. */
void Spiller::cut(Spill &spill, uint32_t nr)
{
	if (nr == spill.nr)
		return;
	Spill rest;
	rest.job = spill.job;
	rest.first = spill.first + nr;
	rest.nr = spill.nr - nr;
	rest.since_ns = spill.since_ns;
	rest.job->nr_open++;
	spill.nr = nr;
	rests_.push_back(std::move(rest));
}

/*
 * Into the buffer, as the bytes will be stored; may cut the spill short. What is
 * stored as it is, the store has copied as it writes.
 */
int Spiller::copy_out(Spill &spill)
{
	ServedArena &served = spill.served();
	ColdFormat format = served.arena().cold_format;
	bool encodes = !spill.clean && served.codec().stored_bytes(format);

	spill.store_copies = !spill.clean && !encodes;
	if (spill.store_copies)
		return 0;
	int err = served.read_out(spill.first, spill.nr,
				  encodes ? staging_.get() : spill.buffer.data);
	if (!err && encodes)
		encode(spill, format);
	return err;
}

/* As many blocks as can be encoded, or else the first one as it is. */
void Spiller::encode(Spill &spill, ColdFormat format)
{
	ServedArena &served = spill.served();
	uint32_t bytes = served.codec().stored_bytes(format), nr = 0;
	codec::ErrorStats error;

	while (nr < spill.nr &&
	       served.codec().encode(format, staging_.get() + served.arena().offset(nr),
				     spill.buffer.data + size_t{nr} * bytes, error)) {
		spill.errors.push_back(error);
		nr++;
	}
	if (nr) {
		spill.format = format;
	} else {
		memcpy(spill.buffer.data, staging_.get(), served.block_bytes());
		served.arena().nr_not_encoded++;
		ledger_.stats.nr_not_encoded++;
	}
	cut(spill, std::max(nr, 1u));
}

void Spiller::copy_and_write(Spill spill)
{
	ServedArena &served = spill.served();

	int err = copy_out(spill);
	if (err) {
		spill.job->fail(err == ENOENT ? ESRCH : err, spill.first);
		abort_all(spill, ledger_.stats.nr_spill_failed);
		end(spill);
		return;
	}
	if (spill.clean) {
		punch(spill);
		end(spill);
		return;
	}
	uint64_t tag = next_tag_++;
	uint32_t bytes = spill.format == ColdFormat::Raw
				 ? served.block_bytes()
				 : served.codec().stored_bytes(spill.format);
	SpillStore::Fill fill;
	if (spill.store_copies)
		fill = [&](uint32_t i, uint32_t nr, std::byte *to) {
			return served.read_out(spill.first + i, nr, to);
		};
	auto written = store_.write(served.key(), spill.first, spill.nr, bytes, ++generation_,
				    spill.buffer, tag, static_cast<uint32_t>(spill.format), fill);
	if (!written) {
		spill.job->fail(written.error().code, spill.first);
		abort_all(spill, ledger_.stats.nr_spill_failed);
		end(spill);
		return;
	}
	served.nr_in_flight++;
	in_flight_.emplace(tag, std::move(spill));
}

/*
 * A page that was pinned before the protection takes DMA without a fault. Its
 * pin is under a lease, so a lease now means that such a pin may exist, and
 * none means that each later one faults.
 */
void Spiller::give_up_leased(Spill &spill)
{
	for (uint32_t block = spill.first; block < spill.first + spill.nr; block++)
		if (spill.served().arena().leased(block))
			abort_block(spill, block);
}

void Spiller::complete(StoreCompletion &&completion)
{
	auto it = in_flight_.find(completion.tag);
	if (it == in_flight_.end())
		return;
	Spill spill = std::move(it->second);
	in_flight_.erase(it);
	ServedArena &served = spill.served();
	served.nr_in_flight--;

	for (uint32_t i = 0; i < spill.nr; i++) {
		uint32_t block = spill.first + i;
		if (completion.results[i] && served.state(block) == BlockState::Spilling) {
			spill.job->fail(completion.results[i], block);
			ledger_.stats.nr_spill_failed++;
			make_writable(served, block);
		}
	}
	punch(spill);
	end(spill);
}

/* From the drain of events to the un-protect, for those blocks of the run that are still protected.
 */
void Spiller::punch(Spill &spill)
{
	ServedArena &served = spill.served();

	/* Only saves work: a write that comes after this is blocked until the un-protect. */
	drain_(served);
	for (uint32_t i = 0; i < spill.nr;) {
		uint32_t first = spill.first + i, nr = 0;
		while (i + nr < spill.nr && served.state(first + nr) == BlockState::Spilling &&
		       served.try_punching(first + nr))
			nr++;
		if (nr)
			i += punch_run(spill, first, nr);
		else
			abort_block(spill, spill.first + i++);
	}
}

uint32_t Spiller::punch_run(Spill &spill, uint32_t first, uint32_t nr)
{
	ServedArena &served = spill.served();
	const Arena &arena = served.arena();
	int err = served.punch(first, nr);

	if (!err && served.is_hole(arena.offset(first), uint64_t{nr} * served.block_bytes())) {
		left_memory(spill, first, nr);
		return nr;
	}
	/*
	 * Something holds pages, as a pin on a huge folio does; the punch may
	 * have zeroed them in place. Those blocks get their bytes back.
	 */
	uint64_t skipped = 0;
	if (complaint_.allow(&skipped))
		log_warning("arena {}: a spill of blocks {}..{} left pages behind ({}); {} more "
			    "not shown",
			    arena.options.number, first, first + nr - 1,
			    err ? strerror(err) : "pinned?", skipped);
	for (uint32_t block = first; block < first + nr; block++) {
		if (served.is_hole(arena.offset(block), served.block_bytes()))
			left_memory(spill, block, 1);
		else
			put_back(spill, block);
	}
	return nr;
}

void Spiller::left_memory(Spill &spill, uint32_t first, uint32_t nr)
{
	ServedArena &served = spill.served();
	const uint64_t now = now_ns();

	ledger_.times.spill_ns.add(now - spill.since_ns, nr);
	for (uint32_t block = first; block < first + nr; block++) {
		served.note_left(block, now);
		if (!spill.clean)
			store_.commit({served.key(), block});
		served.set_state(block, BlockState::Cold);
		if (spill.format == ColdFormat::Raw)
			continue;
		served.arena().head_errors.add(served.arena().geometry.head_of(block),
					       spill.errors[block - spill.first]);
		served.arena().nr_encoded++;
		ledger_.stats.nr_encoded++;
		ledger_.stats.encoded_bytes += served.codec().stored_bytes(spill.format);
	}
	/* Clears the markers that protection left, and wakes late writers: they fault again on the
	 * hole. */
	served.unprotect(first, nr);

	spill.job->outcome.nr_done += nr;
	ledger_.stats.nr_spilled += nr;
	ledger_.stats.nr_spilled_clean += spill.clean ? nr : 0;
	ledger_.stats.spilled_bytes += uint64_t{nr} * served.block_bytes();
}

void Spiller::put_back(Spill &spill, uint32_t block)
{
	ServedArena &served = spill.served();

	/* Where that fails too, the store has the bytes, and a restore writes over the pages that
	 * stayed. */
	if (served.overwrite(block, 1, raw_bytes(spill, block))) {
		left_memory(spill, block, 1);
		return;
	}
	spill.job->fail(EIO, block);
	ledger_.stats.nr_spill_failed++;
	make_writable(served, block);
}

/* What a restore would give, as the pages are gone. */
const std::byte *Spiller::raw_bytes(const Spill &spill, uint32_t block)
{
	ServedArena &served = spill.served();
	uint32_t i = block - spill.first;

	if (spill.format == ColdFormat::Raw)
		return spill.buffer.data + served.arena().offset(i);
	uint32_t bytes = served.codec().stored_bytes(spill.format);
	served.codec().decode(spill.format, {spill.buffer.data + size_t{i} * bytes, bytes},
			      staging_.get());
	return staging_.get();
}

/* A lease was taken, or an event already gave the block up. */
void Spiller::abort_block(Spill &spill, uint32_t block)
{
	ServedArena &served = spill.served();

	if (served.state(block) == BlockState::Spilling) {
		ledger_.stats.nr_spill_aborted++;
		make_writable(served, block);
	}
}

void Spiller::make_writable(ServedArena &served, uint32_t block)
{
	BlockState state = served.state(block);

	if (state == BlockState::Clean)
		served.set_state(block, BlockState::Resident);
	if (state == BlockState::Spilling)
		served.set_state(block, BlockState::Aborted);
	served.unprotect(block, 1);
}

/* Gives up all blocks that are still being spilled. */
void Spiller::abort_all(Spill &spill, uint64_t &counter)
{
	for (uint32_t block = spill.first; block < spill.first + spill.nr; block++) {
		if (spill.served().state(block) == BlockState::Spilling) {
			counter++;
			make_writable(spill.served(), block);
		}
	}
}

/* Whatever became of its blocks, nothing of this spill is in flight any more. */
void Spiller::end(Spill &spill)
{
	ServedArena &served = spill.served();

	for (uint32_t block = spill.first; block < spill.first + spill.nr; block++) {
		if (served.state(block) == BlockState::Aborted) {
			if (!spill.clean)
				store_.abandon({served.key(), block});
			served.set_state(block, BlockState::Resident);
		}
		served.arena().clear_busy(block);
	}
	if (spill.buffer.data)
		store_.give_buffer(spill.buffer);
	release(spill.job);
}

void Spiller::cancel(const ServedArena *served, int error)
{
	std::erase_if(queue_, [&](const JobPtr &job) {
		if (served && job->served != served)
			return false;
		if (!job->at_end())
			job->fail(error, job->block());
		job->extent = job->request.extents.size();
		if (!job->nr_open)
			on_done_(job);
		return true;
	});
	std::erase_if(rests_, [&](Spill &spill) {
		if (served && &spill.served() != served)
			return false;
		spill.job->fail(error, spill.first);
		abort_all(spill, ledger_.stats.nr_spill_aborted);
		end(spill);
		return true;
	});
	for (auto &[tag, spill] : in_flight_)
		if (served && &spill.served() == served)
			abort_all(spill, ledger_.stats.nr_spill_aborted);
}

} // namespace cxlkv
