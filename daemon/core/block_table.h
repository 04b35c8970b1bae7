/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the policy keeps of each block: 17 bytes, and an entry of a victim queue
 * (victim_queue.h) while it is resident. Scores are arrays of their own, for
 * hints that give one to a run of blocks; what a scan of victims asks is one
 * word. Zero is the state of a block that was never made, so memory that no
 * block has used costs nothing.
 */
#pragma once

#include "base/zero_array.h"
#include "core/types.h"

namespace cxlkv {

/* Two 32-bit words, which score_run.cc reads as such. */
struct BlockState {
	uint32_t accessed; /* step */
	uint32_t word;     /* BlockTable's bits */
};

class BlockTable {
public:
	explicit BlockTable(uint32_t nr) : ema(nr), scored(nr), state(nr), priority_(nr) {}

	ZeroArray<float> ema;       /* as of step scored */
	ZeroArray<uint32_t> scored; /* step */
	ZeroArray<BlockState> state;

	[[nodiscard]] Where where(uint32_t b) const { return where_of(state[b].word); }
	void set_where(uint32_t b, Where where)
	{
		set(b, where_mask, static_cast<uint32_t>(where));
	}
	static Where where_of(uint32_t word) { return static_cast<Where>(word & where_mask); }

	[[nodiscard]] uint32_t accessed(uint32_t b) const { return state[b].accessed; }
	void set_accessed(uint32_t b, uint32_t step) { state[b].accessed = step; }

	/* Of the reuse model, below 64; 0 until the first access. */
	[[nodiscard]] uint8_t kind(uint32_t b) const { return kind_of(state[b].word); }
	void set_kind(uint32_t b, uint8_t kind) { set(b, kind_mask, uint32_t{kind} << kind_shift); }
	static uint8_t kind_of(uint32_t word)
	{
		return static_cast<uint8_t>((word & kind_mask) >> kind_shift);
	}

	/* An entry for the block exists in the hot or the warm victim queue. */
	[[nodiscard]] bool queued(uint32_t b, Where tier) const
	{
		return state[b].word & queued_bit(tier);
	}
	void set_queued(uint32_t b, Where tier) { state[b].word |= queued_bit(tier); }
	void clear_queued(uint32_t b, Where tier) { state[b].word &= ~queued_bit(tier); }

	/* An order for the block is out and not answered yet. */
	[[nodiscard]] bool ordered(uint32_t b) const { return state[b].word & ordered_bit; }
	void set_ordered(uint32_t b) { state[b].word |= ordered_bit; }
	void clear_ordered(uint32_t b) { state[b].word &= ~ordered_bit; }

	/* Orders refused in a row, counted up to 3. */
	[[nodiscard]] unsigned refusals(uint32_t b) const
	{
		return (state[b].word & refusals_mask) >> refusals_shift;
	}
	void set_refusals(uint32_t b, unsigned nr) { set(b, refusals_mask, nr << refusals_shift); }

	[[nodiscard]] uint8_t priority(uint32_t b) const
	{
		return state[b].word & pinned_bit ? priority_[b] : uint8_t{CXL_KV_DEFAULT_PRIORITY};
	}
	void set_priority(uint32_t b, uint8_t priority)
	{
		bool pinned = priority != CXL_KV_DEFAULT_PRIORITY;
		set(b, pinned_bit, pinned ? pinned_bit : 0);
		if (pinned)
			priority_[b] = priority;
	}

	/* Nothing is ordered of the block before the hold ends; ms below max_hold_ms. */
	void set_hold(uint32_t b, uint64_t now_ms, uint32_t ms)
	{
		uint16_t until = static_cast<uint16_t>((now_ms + ms) / hold_unit_ms + 1);
		set(b, hold_mask, uint32_t{until} << hold_shift);
	}
	[[nodiscard]] bool held(uint32_t b, uint64_t now_ms) const
	{
		/*
		 * 16 bits wrap after 17 minutes. A difference longer than any
		 * hold is a stamp from the past; a stale one that looks like the
		 * future once a wrap ends at most max_hold_ms later.
		 */
		uint16_t until = static_cast<uint16_t>(state[b].word >> hold_shift);
		uint16_t left = static_cast<uint16_t>(until - now_ms / hold_unit_ms);
		return until && left && left <= max_hold_ms / hold_unit_ms + 1;
	}

	static constexpr uint32_t max_hold_ms = 16'000;
	static constexpr uint32_t where_mask = 0x7;

private:
	static constexpr uint32_t hold_unit_ms = 16;
	static constexpr uint32_t ordered_bit = 0x8, pinned_bit = 0x4000;
	static constexpr unsigned refusals_shift = 6, kind_shift = 8, hold_shift = 16;
	static constexpr uint32_t refusals_mask = 0x3u << refusals_shift,
				  kind_mask = 0x3fu << kind_shift,
				  hold_mask = 0xffffu << hold_shift;
	static constexpr uint32_t queued_bit(Where tier)
	{
		return tier == Where::Hot ? 0x10 : 0x20;
	}

	void set(uint32_t b, uint32_t mask, uint32_t bits)
	{
		state[b].word = (state[b].word & ~mask) | bits;
	}

	ZeroArray<uint8_t> priority_; /* of pinned blocks */
};

} // namespace cxlkv
