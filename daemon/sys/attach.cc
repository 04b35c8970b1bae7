/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/attach.h"

#include "sys/uffd.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

namespace cxlkv {

namespace {

/* Pages of each block that the file has. SEEK_HOLE is fine here: each page is walked over once. */
Result<std::vector<uint16_t>> count_pages(const ServedArena &served)
{
	const Arena &arena = served.arena();
	std::vector<uint16_t> pages(served.nr_blocks(), 0);
	uint64_t bytes = arena.geometry.bytes();

	for (uint64_t at = 0; at < bytes;) {
		off_t data = lseek(arena.memory_fd(), static_cast<off_t>(at), SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		off_t hole = data < 0 ? -1 : lseek(arena.memory_fd(), data, SEEK_HOLE);
		if (hole < 0)
			return sys_error("scan an arena");
		for (at = static_cast<uint64_t>(data); at < static_cast<uint64_t>(hole);
		     at += uffd::page_bytes)
			pages[at / served.block_bytes()]++;
	}
	return pages;
}

/*
 * A present page is newer than any record, or equal to it. A hole takes the
 * record the store has. Where it has none, the word that the client kept tells
 * a block that was never made from one whose data should be somewhere: a spill
 * file that was replaced must not turn data into zeros. And what was dropped or
 * lost stays so: the record of it that may still be there is an old one.
 */
void settle(ServedArena &served, SpillStore &store, Restorer &restorer, uint32_t block, bool whole,
	    bool part)
{
	BlockKey key{served.key(), block};
	const uint64_t state = served.arena().word(block) & CXL_KV_WORD_STATE_MASK;
	const bool was_empty = state == CXL_KV_EMPTY;

	/* The dead daemon may not have come to note in the file that the record is void. */
	if (was_empty || state == CXL_KV_LOST)
		store.drop(key);
	if (whole)
		served.set_state(block, BlockState::Resident);
	else if (!was_empty && !store.contains(key))
		restorer.lose(served, block);
	else if (part && was_empty) /* a make was cut off; its other pages are zero, too */
		served.set_state(block, served.fill_zero(block) ? BlockState::Empty
								: BlockState::Resident);
	else if (part)
		restorer.fill(served, block);
	else
		served.set_state(block, was_empty ? BlockState::Empty : BlockState::Cold);
}

} // namespace

Result<> attach(ServedArena &served, SpillStore &store, Restorer &restorer,
		const FaultServerOptions &options)
{
	if (served.block_bytes() > options.extent_bytes)
		return error(EINVAL, fmt::format("blocks of {} bytes do not fit into extents of {} "
						 "bytes: raise [cold] "
						 "extent_bytes",
						 served.block_bytes(), options.extent_bytes));
	/* Releases spills that were cut off half-way, and writers of blocks that were clean. */
	if (int err = served.unprotect(0, served.nr_blocks()))
		return error(
			err == ESRCH ? ESRCH : EINVAL,
			fmt::format("the client's range is not registered with its userfaultfd: {}",
				    strerror(err)));
	auto pages = count_pages(served);
	if (!pages)
		return pages.error();

	uint32_t per_block = served.block_bytes() / uffd::page_bytes;
	for (uint32_t block = 0; block < served.nr_blocks(); block++) {
		uint32_t nr = (*pages)[block];
		settle(served, store, restorer, block, nr == per_block, nr != 0);
	}
	/* Events that the dead daemon had read are not reported again without this. */
	served.wake(0, served.nr_blocks());
	return ok();
}

} // namespace cxlkv
