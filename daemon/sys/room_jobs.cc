/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Admitted jobs move a cursor over their blocks, as far as these have got; no
 * block knows who waits for it. A slice at a time, so that faults are answered
 * in between.
 */
#include "sys/room.h"

#include <algorithm>

namespace cxlkv {

Room::Step Room::advance(Job &job, uint64_t *budget)
{
	if (job.served->gone()) {
		job.fail(ESRCH, job.at_end() ? 0 : job.block());
		take_back(job);
		return Step::Done;
	}
	switch (job.request.kind) {
	case Request::Kind::Make:
		return advance_make(job, budget);
	case Request::Kind::Drop:
		return advance_drop(job, budget);
	case Request::Kind::Forget:
		return advance_forget(job, budget);
	default:
		return advance_fetch(job);
	}
}

void Room::begin_make(ServedArena &served, uint32_t block)
{
	if (served.state(block) == BlockState::Lost) {
		/* Pages clear the poison, a punch alone does not. */
		served.zero(block, 1);
		served.punch(block, 1);
	}
	served.set_state(block, BlockState::Making);
}

Room::Step Room::advance_make(Job &job, uint64_t *budget)
{
	ServedArena &served = *job.served;

	while (!job.at_end()) {
		uint32_t first = job.block(), nr = 0;
		if (needs_room(Request::Kind::Make,
			       served.state(first))) /* another job gave it back */
			begin_make(served, first);
		while (nr < job.nr_adjacent() && served.state(first + nr) == BlockState::Making &&
		       nr * uint64_t{served.block_bytes()} < *budget)
			nr++;
		if (!nr && served.state(first) == BlockState::Making)
			return Step::Again;
		if (!nr) {
			job.advance(1);
			continue;
		}
		*budget -= std::min(*budget, nr * uint64_t{served.block_bytes()});
		if (int err = served.zero(first, nr)) {
			job.fail(served.gone() ? ESRCH : err == ENOMEM ? EBUSY : err, first);
			take_back(job);
			return Step::Done;
		}
		for (uint32_t block = first; block < first + nr; block++)
			served.set_state(block, BlockState::Resident);
		served.wake(first, nr);
		ledger_.stats.nr_made += nr;
		job.outcome.nr_done += nr;
		job.advance(nr);
	}
	return Step::Done;
}

Room::Step Room::advance_fetch(Job &job)
{
	ServedArena &served = *job.served;
	bool prefetch = job.request.kind == Request::Kind::Prefetch;

	for (; !job.at_end(); job.advance(1)) {
		uint32_t block = job.block();
		switch (served.state(block)) {
		case BlockState::Cold: /* somebody took it back, or it was spilled again */
			if (prefetch)
				break;
			restorer_.fetch(served, block, job.start_ns);
			return Step::Waits;
		case BlockState::Queued:
		case BlockState::Demanded:
		case BlockState::Reading:
		case BlockState::Filling:
		case BlockState::Making:
			return Step::Waits;
		case BlockState::Lost:
			if (prefetch)
				break;
			job.fail(EIO, block);
			take_back(job);
			return Step::Done;
		case BlockState::Empty:
			if (prefetch)
				break;
			job.fail(ENODATA, block);
			take_back(job);
			return Step::Done;
		case BlockState::Resident:
		case BlockState::Clean:
		case BlockState::Spilling:
		case BlockState::Aborted:
			job.outcome.nr_done++;
			break;
		}
	}
	return Step::Done;
}

Room::Step Room::advance_drop(Job &job, uint64_t *budget)
{
	for (; !job.at_end(); job.advance(1)) {
		if (!*budget)
			return Step::Again;
		*budget -= std::min<uint64_t>(*budget, job.served->block_bytes());
		int err = 0;
		if (drop_block(*job.served, job.block(), BlockState::Empty, &err) == Step::Waits)
			return Step::Waits;
		if (err) {
			job.fail(err, job.block());
			return Step::Done;
		}
		job.outcome.nr_done++;
	}
	return Step::Done;
}

/* What is in use is left alone: the policy finds it as it is. */
Room::Step Room::advance_forget(Job &job, uint64_t *budget)
{
	for (; !job.at_end(); job.advance(1)) {
		const BlockState state = job.served->state(job.block());
		if (!*budget)
			return Step::Again;
		*budget -= std::min<uint64_t>(*budget, job.served->block_bytes());
		int err = 0;
		if (state == BlockState::Resident || state == BlockState::Clean ||
		    state == BlockState::Cold)
			drop_block(*job.served, job.block(), BlockState::Lost, &err);
		job.outcome.nr_done += job.served->state(job.block()) == BlockState::Lost;
	}
	return Step::Done;
}

/* To Empty, or to Lost: then who touches it is told. Waits: the mover, or I/O in flight, has the
 * block just now. */
Room::Step Room::drop_block(ServedArena &served, uint32_t block, BlockState to, int *error)
{
	Arena &arena = served.arena();
	BlockState state = served.state(block);

	if (state == BlockState::Empty)
		return Step::Done;
	if (arena.leased(block)) {
		*error = EBUSY;
		return Step::Done;
	}
	if (state == BlockState::Spilling)
		spiller_.make_writable(served, block);
	if (state == BlockState::Spilling || state == BlockState::Aborted ||
	    state == BlockState::Reading || state == BlockState::Filling)
		return Step::Waits;
	if (!arena.try_busy(block)) {
		busy_ = true;
		return Step::Waits;
	}
	bool unleased =
		arena.publish_unleased(block, to == BlockState::Lost ? CXL_KV_LOST : CXL_KV_EMPTY);
	if (unleased) {
		store_.drop({served.key(), block});
		if (state == BlockState::Lost) /* a punch does not clear poison */
			served.zero(block, 1);
		served.punch(block, 1);
		served.set_state(block, to);
		if (to == BlockState::Lost)
			served.poison(block);
		else
			served.unprotect(block, 1); /* clears markers; and threads that waited
						       fault again */
		ledger_.stats.nr_dropped++;
	} else {
		*error = EBUSY;
	}
	arena.clear_busy(block);
	return Step::Done;
}

} // namespace cxlkv
