/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/served_arena.h"

#include "sys/uffd.h"

#include <fcntl.h>
#include <unistd.h>

namespace cxlkv {

namespace {

cxl_kv_state public_state(BlockState state)
{
	switch (state) {
	case BlockState::Empty:
	case BlockState::Making:
		return CXL_KV_EMPTY;
	case BlockState::Resident:
	case BlockState::Clean:
	case BlockState::Aborted:
		return CXL_KV_RESIDENT;
	case BlockState::Spilling:
		return CXL_KV_SPILLING;
	case BlockState::Cold:
		return CXL_KV_COLD;
	case BlockState::Queued:
	case BlockState::Demanded:
	case BlockState::Reading:
	case BlockState::Filling:
		return CXL_KV_RESTORING;
	case BlockState::Lost:
		break;
	}
	return CXL_KV_LOST;
}

bool holds_reservation(BlockState state)
{
	return state == BlockState::Making || state == BlockState::Queued ||
	       state == BlockState::Demanded || state == BlockState::Reading ||
	       state == BlockState::Filling;
}

bool in_memory(Where where)
{
	return where == Where::Hot || where == Where::Warm;
}

/* Blocks that stay in memory keep the tier they are in; what comes into memory comes where its
 * session is placed. */
Where where_of(BlockState state, Where now, Where placement)
{
	switch (public_state(state)) {
	case CXL_KV_EMPTY:
		return Where::Empty;
	case CXL_KV_RESIDENT:
	case CXL_KV_SPILLING:
		return in_memory(now) ? now : placement;
	case CXL_KV_LOST:
		return Where::Lost;
	default:
		return Where::Cold;
	}
}

} // namespace

ServedArena::ServedArena(std::shared_ptr<Arena> arena, Ledger &ledger)
    : arena_(std::move(arena)), codec_(arena_->geometry), ledger_(ledger),
      states_(arena_->geometry.nr_blocks(), BlockState::Empty), left_ms_(states_.size())
{
}

ServedArena::~ServedArena()
{
	reserve(-static_cast<int64_t>(reserved_bytes_));
}

void ServedArena::set_state(uint32_t block, BlockState state)
{
	Where before = arena_->where(block);
	Where after = where_of(state, before, arena_->placement(arena_->geometry.slot_of(block)));

	if (holds_reservation(states_[block]))
		reserve(-int64_t{block_bytes()});
	if (holds_reservation(state))
		reserve(block_bytes());
	states_[block] = state;
	if (after != before) {
		arena_->set_where(block, after);
		ledger_.note_moved(arena_->options.number, block, after);
	}
	arena_->publish(block, public_state(state), state == BlockState::Clean);
}

bool ServedArena::try_spilling(uint32_t block)
{
	if (!arena_->publish_unleased(block, CXL_KV_SPILLING))
		return false;
	states_[block] = BlockState::Spilling;
	return true;
}

int ServedArena::noted(int err)
{
	if (err == ESRCH || err == ENOENT)
		gone_ = true;
	return err;
}

int ServedArena::protect(uint32_t first, uint32_t nr)
{
	return noted(uffd::protect(arena_->uffd(), arena_->client_address(first),
				   uint64_t{nr} * block_bytes()));
}

int ServedArena::unprotect(uint32_t first, uint32_t nr)
{
	return noted(uffd::unprotect(arena_->uffd(), arena_->client_address(first),
				     uint64_t{nr} * block_bytes(), true));
}

int ServedArena::wake(uint32_t first, uint32_t nr)
{
	return noted(uffd::wake(arena_->uffd(), arena_->client_address(first),
				uint64_t{nr} * block_bytes()));
}

int ServedArena::zero(uint32_t first, uint32_t nr)
{
	uint64_t address = arena_->client_address(first), bytes = uint64_t{nr} * block_bytes();

	int err = uffd::zeropage(arena_->uffd(), address, bytes);
	if (err == EEXIST) {
		/* A stray page of unknown contents: the hole was touched behind our back. */
		punch(first, nr);
		err = uffd::zeropage(arena_->uffd(), address, bytes);
	}
	if (err == EEXIST)
		err = uffd::map_existing(arena_->uffd(), address, bytes, false);
	return noted(err);
}

int ServedArena::fill_zero(uint32_t block)
{
	int err = uffd::zeropage(arena_->uffd(), arena_->client_address(block), block_bytes());
	return err == EEXIST ? 0 : noted(err);
}

int ServedArena::copy_in(uint32_t first, uint32_t nr, const std::byte *from, bool protect,
			 uint64_t *nr_existing)
{
	return noted(uffd::copy(arena_->uffd(), arena_->client_address(first), from,
				uint64_t{nr} * block_bytes(), protect, nr_existing));
}

int ServedArena::overwrite(uint32_t first, uint32_t nr, const std::byte *from)
{
	uint64_t bytes = uint64_t{nr} * block_bytes(), done = 0;

	while (done < bytes) {
		ssize_t n = pwrite(arena_->memory_fd(), from + done, bytes - done,
				   static_cast<off_t>(arena_->offset(first) + done));
		if (n <= 0)
			return n < 0 ? errno : EIO;
		done += static_cast<uint64_t>(n);
	}
	return map_existing(arena_->client_address(first), bytes, false);
}

int ServedArena::map_existing(uint64_t address, uint64_t bytes, bool protect)
{
	return noted(uffd::map_existing(arena_->uffd(), address, bytes, protect));
}

void ServedArena::poison(uint32_t block)
{
	uint64_t skipped = 0;

	/* Poison goes into a hole without marker only. */
	punch(block, 1);
	uffd::unprotect(arena_->uffd(), arena_->client_address(block), block_bytes(), false);
	int err = noted(uffd::poison(arena_->uffd(), arena_->client_address(block), block_bytes()));
	if (!err)
		wake(block, 1);
	else if (!gone_ && complaint_.allow(&skipped))
		/* Waking would only make the thread fault again. */
		log_error("arena {}: block {} is lost, and the kernel cannot poison it ({}): "
			  "threads that touch it wait",
			  arena_->options.number, block, strerror(err));
}

int ServedArena::read_out(uint32_t first, uint32_t nr, std::byte *to)
{
	uint64_t bytes = uint64_t{nr} * block_bytes(), done = 0;

	while (done < bytes) {
		ssize_t n = pread(arena_->memory_fd(), to + done, bytes - done,
				  static_cast<off_t>(arena_->offset(first) + done));
		if (n <= 0)
			return n < 0 ? errno : EIO;
		done += static_cast<uint64_t>(n);
	}
	return 0;
}

int ServedArena::punch(uint32_t first, uint32_t nr)
{
	int ret = fallocate(arena_->memory_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			    static_cast<off_t>(arena_->offset(first)),
			    static_cast<off_t>(uint64_t{nr} * block_bytes()));
	return ret ? errno : 0;
}

bool ServedArena::is_hole(uint64_t offset, uint64_t bytes) const
{
	/* SEEK_DATA stops at the first page; SEEK_HOLE would walk all that are there. */
	off_t data = lseek(arena_->memory_fd(), static_cast<off_t>(offset), SEEK_DATA);
	if (data < 0)
		return errno == ENXIO;
	return static_cast<uint64_t>(data) >= offset + bytes;
}

} // namespace cxlkv
