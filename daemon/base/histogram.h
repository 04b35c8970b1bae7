/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counts of durations in buckets that grow by 1/8: percentiles within 12 % at a few KiB. Any
 * thread. */
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace cxlkv {

class Histogram {
public:
	void add(uint64_t value, uint64_t nr = 1)
	{
		counts_[bucket(value)].fetch_add(nr, std::memory_order_relaxed);
		nr_.fetch_add(nr, std::memory_order_relaxed);
		sum_.fetch_add(value * nr, std::memory_order_relaxed);
	}

	[[nodiscard]] uint64_t count() const { return nr_.load(std::memory_order_relaxed); }

	[[nodiscard]] uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }

	/* How many were at most so large, by whole buckets: a value within 12 % of it may be
	 * missing. */
	[[nodiscard]] uint64_t nr_at_most(uint64_t value) const
	{
		uint64_t nr = 0;

		for (uint32_t i = 0; i < counts_.size() && upper_edge(i) <= value; i++)
			nr += counts_[i].load(std::memory_order_relaxed);
		return nr;
	}

	/* Upper edge of the bucket that holds the permille-th of 1,000 values; 0 when there is
	 * none. */
	[[nodiscard]] uint64_t permille(uint32_t permille) const
	{
		const uint64_t nr = count();
		uint64_t rank = (nr * permille + 999) / 1000, seen = 0;

		if (!nr)
			return 0;
		for (uint32_t i = 0; i < counts_.size(); i++) {
			seen += counts_[i].load(std::memory_order_relaxed);
			if (seen >= rank)
				return upper_edge(i);
		}
		return upper_edge(counts_.size() - 1);
	}

private:
	/* Below 8 a bucket a value; above, the top bit and the three bits below it. */
	static uint32_t bucket(uint64_t value)
	{
		if (value < 8)
			return static_cast<uint32_t>(value);
		auto shift = static_cast<uint32_t>(std::bit_width(value)) - 4;
		return (shift << 3) + static_cast<uint32_t>(value >> shift);
	}

	static uint64_t upper_edge(uint64_t index)
	{
		if (index < 8)
			return index;
		uint64_t shift = (index - 8) >> 3;
		return (((index - (shift << 3)) + 1) << shift) - 1;
	}

	std::array<std::atomic<uint64_t>, 61 * 8 + 8> counts_{};
	std::atomic<uint64_t> nr_{0}, sum_{0};
};

} // namespace cxlkv
