/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An arena as the I/O thread serves it: the private state of each block, and
 * the single steps of the spill protocol on a run of adjacent blocks. No
 * queues and no store here; the order of the steps is the callers' business.
 */
#pragma once

#include "base/log.h"
#include "sys/arena.h"
#include "sys/ledger.h"

#include <memory>
#include <vector>

namespace cxlkv {

enum class BlockState : uint8_t {
	Empty,    /* nothing anywhere; a touch makes zeros */
	Making,   /* holds a reservation; zeroed pages come shortly */
	Resident, /* pages are there; a record in the store is stale, the next spill replaces it */
	Clean,    /* pages are there, write-protected, and equal to the store's record */
	Spilling, /* pages are there, write-protected, being copied out */
	Aborted,  /* as Resident, but I/O of its given-up spill is still in flight */
	Cold,     /* a hole; the store has it */
	Queued,   /* a hole with a reservation; its read has not begun */
	Demanded, /* likewise, and a thread is blocked on it */
	Reading,  /* a hole with a reservation; its read is in flight */
	Filling,  /* some pages are there and win, the store has the others */
	Lost,     /* poisoned */
};

class ServedArena {
public:
	ServedArena(std::shared_ptr<Arena> arena, Ledger &ledger);
	~ServedArena();
	ServedArena(const ServedArena &) = delete;
	ServedArena &operator=(const ServedArena &) = delete;

	[[nodiscard]] Arena &arena() const { return *arena_; }
	[[nodiscard]] BlockCodec &codec() { return codec_; }
	[[nodiscard]] uint64_t key() const { return arena_->options.key; }
	[[nodiscard]] uint32_t block_bytes() const { return arena_->geometry.block_bytes; }
	[[nodiscard]] uint32_t nr_blocks() const { return static_cast<uint32_t>(states_.size()); }
	[[nodiscard]] BlockState state(uint32_t block) const { return states_[block]; }

	/* When it last left memory, to a millisecond; 0 = not since this daemon began. */
	[[nodiscard]] uint64_t left_ns(uint32_t block) const
	{
		return uint64_t{left_ms_[block]} * 1000000;
	}
	void note_left(uint32_t block, uint64_t now_ns)
	{
		left_ms_[block] = static_cast<uint32_t>(now_ns / 1000000);
	}

	/* Also tells the client, the daemon's record, the reservation and the policy. */
	void set_state(uint32_t block, BlockState state);
	/* To Spilling, unless somebody holds a lease. */
	[[nodiscard]] bool try_spilling(uint32_t block);
	/* The point of no return of a spill: from now on a lease is told to fetch. False: leased.
	 */
	[[nodiscard]] bool try_punching(uint32_t block)
	{
		return arena_->publish_unleased(block, CXL_KV_PUNCHING);
	}

	/* The steps; 0 or an errno. ESRCH and ENOENT also set gone(). */
	int protect(uint32_t first, uint32_t nr);
	int unprotect(uint32_t first, uint32_t nr); /* and wake */
	int wake(uint32_t first, uint32_t nr);
	/* Zeroed pages, whatever was there. */
	int zero(uint32_t first, uint32_t nr);
	/* Zeroed pages where there are none. */
	int fill_zero(uint32_t block);
	/* Fills holes; *nr_existing = pages that were there and were left alone. */
	int copy_in(uint32_t first, uint32_t nr, const std::byte *from, bool protect,
		    uint64_t *nr_existing);
	/* Writes over whatever is there, and maps it. */
	int overwrite(uint32_t first, uint32_t nr, const std::byte *from);
	int map_existing(uint64_t address, uint64_t bytes, bool protect);
	/* SIGBUS to whoever touches the block, also to threads that are blocked on it. */
	void poison(uint32_t block);
	/* Copies blocks out without touching a mapping. */
	int read_out(uint32_t first, uint32_t nr, std::byte *to);
	int punch(uint32_t first, uint32_t nr);
	/* True when not one page is there. */
	[[nodiscard]] bool is_hole(uint64_t offset, uint64_t bytes) const;

	/* The client died, or unmapped its arena: nothing can be done for it any more. */
	[[nodiscard]] bool gone() const { return gone_; }
	void set_gone() { gone_ = true; }

	/* Of the ledger's, this arena's part. */
	[[nodiscard]] uint64_t reserved_bytes() const { return reserved_bytes_; }

	uint32_t nr_in_flight = 0; /* I/Os of the store that name this arena */
	bool leaving = false;      /* a Detach waits for nr_in_flight == 0 */

private:
	int noted(int err);
	void reserve(int64_t bytes)
	{
		reserved_bytes_ += static_cast<uint64_t>(bytes);
		ledger_.reserved_bytes += static_cast<uint64_t>(bytes);
	}

	std::shared_ptr<Arena> arena_;
	BlockCodec codec_;
	Ledger &ledger_;
	std::vector<BlockState> states_;
	std::vector<uint32_t> left_ms_; /* CLOCK_MONOTONIC: 49 days, then one gap is wrong */
	uint64_t reserved_bytes_ = 0;
	bool gone_ = false;
	LogLimit complaint_;
};

} // namespace cxlkv
