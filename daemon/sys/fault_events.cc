/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Duplicate and stale events are normal: a signal re-reports a blocked fault,
 * and an event may be read after what it tells was dealt with. So each event
 * is answered from the block's state now, and answering twice is harmless.
 */
#include "sys/fault_events.h"

#include "sys/uffd.h"
#include "sys/uffd_abi.h"

#include <array>

namespace cxlkv {

FaultEvents::FaultEvents(Ledger &ledger, Spiller &spiller, Restorer &restorer)
    : ledger_(ledger), spiller_(spiller), restorer_(restorer)
{
}

bool FaultEvents::drain(ServedArena &served)
{
	constexpr int max_batches =
		16; /* a client with very many threads waits for its next turn */
	std::array<uffd_msg, 64> batch;

	for (int i = 0; i < max_batches && !served.gone(); i++) {
		auto nr = uffd::read_events(served.arena().uffd(), batch);
		if (!nr) {
			log_error("arena {}: {}", served.arena().options.number, nr.error().what);
			served.set_gone();
			return true;
		}
		for (size_t m = 0; m < *nr; m++)
			handle(served, batch[m]);
		if (*nr < batch.size())
			return true;
	}
	return false;
}

void FaultEvents::handle(ServedArena &served, const uffd_msg &msg)
{
	const Arena &arena = served.arena();
	uint64_t address = msg.arg.pagefault.address & ~(uffd::page_bytes - 1);

	/* The client may have registered other memory of its own on this file: not ours to answer.
	 */
	if (msg.event != UFFD_EVENT_PAGEFAULT || address < arena.options.client_base ||
	    address - arena.options.client_base >= arena.geometry.bytes())
		return;
	auto block =
		static_cast<uint32_t>((address - arena.options.client_base) / served.block_bytes());
	uint64_t flags = msg.arg.pagefault.flags;
	if (flags & UFFD_PAGEFAULT_FLAG_WP) {
		ledger_.stats.nr_faults_wp++;
		written(served, block);
	} else if (flags & UFFD_PAGEFAULT_FLAG_MINOR) {
		ledger_.stats.nr_faults_minor++;
		minor(served, block, address);
	} else {
		ledger_.stats.nr_faults_missing++;
		missing(served, block, address);
	}
}

void FaultEvents::written(ServedArena &served, uint32_t block)
{
	if (served.state(block) == BlockState::Spilling)
		ledger_.stats.nr_spill_aborted++;
	/* In every other state, too: it wakes, and where the block has left memory the thread
	 * faults again. */
	spiller_.make_writable(served, block);
}

void FaultEvents::missing(ServedArena &served, uint32_t block, uint64_t address)
{
	switch (served.state(block)) {
	case BlockState::Resident:
	case BlockState::Clean:
	case BlockState::Spilling:
	case BlockState::Aborted:
		if (served.is_hole(address - served.arena().options.client_base,
				   uffd::page_bytes) &&
		    served.arena().try_busy(block)) {
			/* The client punched its own file. What was there is gone, and waking would
			 * not end. */
			restorer_.lose(served, block);
			served.arena().clear_busy(block);
		} else {
			served.wake(block, 1);
		}
		return;
	default:
		not_in_memory(served, block);
	}
}

/* The file has a page that the client's page table lacks. */
void FaultEvents::minor(ServedArena &served, uint32_t block, uint64_t address)
{
	switch (served.state(block)) {
	case BlockState::Resident:
	case BlockState::Aborted:
		served.map_existing(address, uffd::page_bytes, false);
		served.wake(block, 1);
		return;
	case BlockState::Clean:
	case BlockState::Spilling:
		served.map_existing(address, uffd::page_bytes, true);
		served.wake(block, 1);
		return;
	default:
		/* A stray page in a hole: never served; what fills the block writes over it. */
		not_in_memory(served, block);
	}
}

void FaultEvents::not_in_memory(ServedArena &served, uint32_t block)
{
	switch (served.state(block)) {
	case BlockState::Empty:
	case BlockState::Making:
		/* A demand fault never waits for room. Without memory just now, it comes again. */
		if (!served.zero(block, 1))
			served.set_state(block, BlockState::Resident);
		served.wake(block, 1);
		return;
	case BlockState::Cold:
	case BlockState::Queued:
		restorer_.demand(served, block);
		return;
	case BlockState::Lost:
		served.poison(block);
		return;
	default:
		return; /* Demanded, Reading, Filling: woken when it is there */
	}
}

} // namespace cxlkv
