/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the policy keeps of each block, as arrays: 17 bytes a block, and 4 in a
 * victim queue while it is resident. Zero is the state of a block that was never
 * made, so memory that no block has used costs nothing.
 */
#pragma once

#include "core/types.h"

#include <cstdlib>
#include <memory>

namespace cxlkv {

/* calloc'ed: the kernel gives zero pages on first touch. */
template <typename T> class ZeroArray {
public:
	explicit ZeroArray(size_t nr) : data_(static_cast<T *>(calloc(nr, sizeof(T))), free)
	{
		if (!data_)
			throw std::bad_alloc();
	}
	T &operator[](size_t i) { return data_.get()[i]; }
	const T &operator[](size_t i) const { return data_.get()[i]; }
	T *data() { return data_.get(); }

private:
	std::unique_ptr<T, decltype(&free)> data_;
};

class BlockTable {
public:
	explicit BlockTable(uint32_t nr)
	    : ema(nr), scored(nr), accessed(nr), kind(nr), flags_(nr), priority_(nr), hold_(nr)
	{
	}

	ZeroArray<float> ema;         /* as of step scored */
	ZeroArray<uint32_t> scored;   /* step */
	ZeroArray<uint32_t> accessed; /* step */
	ZeroArray<uint8_t> kind;      /* of the reuse model; 0 until the first access */

	[[nodiscard]] Where where(uint32_t b) const
	{
		return static_cast<Where>(flags_[b] & where_mask);
	}
	void set_where(uint32_t b, Where where)
	{
		flags_[b] = static_cast<uint8_t>((flags_[b] & ~where_mask) |
						 static_cast<uint8_t>(where));
	}

	/* An entry for the block exists in the hot or the warm victim queue. */
	[[nodiscard]] bool queued(uint32_t b, Where tier) const
	{
		return flags_[b] & queued_bit(tier);
	}
	void set_queued(uint32_t b, Where tier) { flags_[b] |= queued_bit(tier); }
	void clear_queued(uint32_t b, Where tier)
	{
		flags_[b] &= static_cast<uint8_t>(~queued_bit(tier));
	}

	/* An order for the block is out and not answered yet. */
	[[nodiscard]] bool ordered(uint32_t b) const { return flags_[b] & ordered_bit; }
	void set_ordered(uint32_t b) { flags_[b] |= ordered_bit; }
	void clear_ordered(uint32_t b) { flags_[b] &= static_cast<uint8_t>(~ordered_bit); }

	/* Orders refused in a row, counted up to 3. */
	[[nodiscard]] unsigned refusals(uint32_t b) const { return flags_[b] >> refusals_shift; }
	void set_refusals(uint32_t b, unsigned nr)
	{
		flags_[b] = static_cast<uint8_t>((flags_[b] & ~(3u << refusals_shift)) |
						 nr << refusals_shift);
	}

	[[nodiscard]] uint8_t priority(uint32_t b) const
	{
		return priority_[b] ? uint8_t(priority_[b] - 1) : uint8_t{CXL_KV_DEFAULT_PRIORITY};
	}
	void set_priority(uint32_t b, uint8_t priority) { priority_[b] = uint8_t(priority + 1); }

	/* Nothing is ordered of the block before the hold ends; ms below max_hold_ms. */
	void set_hold(uint32_t b, uint64_t now_ms, uint32_t ms)
	{
		hold_[b] = static_cast<uint16_t>((now_ms + ms) / hold_unit_ms + 1);
	}
	[[nodiscard]] bool held(uint32_t b, uint64_t now_ms) const
	{
		/*
		 * 16 bits wrap after 17 minutes. A difference longer than any
		 * hold is a stamp from the past; a stale one that looks like the
		 * future once a wrap ends at most max_hold_ms later.
		 */
		uint16_t left = static_cast<uint16_t>(hold_[b] - now_ms / hold_unit_ms);
		return hold_[b] && left && left <= max_hold_ms / hold_unit_ms + 1;
	}

	static constexpr uint32_t max_hold_ms = 16'000;

private:
	static constexpr uint32_t hold_unit_ms = 16;
	static constexpr uint8_t where_mask = 0x7, ordered_bit = 0x8;
	static constexpr unsigned refusals_shift = 6;
	static constexpr uint8_t queued_bit(Where tier) { return tier == Where::Hot ? 0x10 : 0x20; }

	ZeroArray<uint8_t> flags_;
	ZeroArray<uint8_t> priority_; /* 1 + priority; 0 = default */
	ZeroArray<uint16_t> hold_;
};

} // namespace cxlkv
