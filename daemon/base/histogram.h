/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Latency histogram: 16 buckets an octave (error at most 6 %), no allocation,
 * one writer or many, read by any thread. Unit is the caller's (we use ns).
 */
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace cxlkv {

class Histogram {
public:
	void add(uint64_t value) { buckets_[bucket_of(value)].fetch_add(1, std::memory_order_relaxed); }

	[[nodiscard]] uint64_t count() const
	{
		uint64_t sum = 0;
		for (const auto &bucket : buckets_)
			sum += bucket.load(std::memory_order_relaxed);
		return sum;
	}

	/* Upper edge of the bucket that holds the given fraction (0..1) of values; 0 where there are none. */
	[[nodiscard]] uint64_t quantile(double fraction) const
	{
		auto rank = static_cast<uint64_t>(fraction * static_cast<double>(count()));
		uint64_t seen = 0;
		uint64_t last = 0;
		for (uint32_t i = 0; i < buckets_.size(); i++) {
			uint64_t n = buckets_[i].load(std::memory_order_relaxed);
			if (!n)
				continue;
			seen += n;
			last = upper_edge(i);
			if (seen > rank)
				break;
		}
		return last;
	}

private:
	static constexpr uint32_t kSub = 16;

	static uint32_t bucket_of(uint64_t value)
	{
		if (value < kSub)
			return static_cast<uint32_t>(value);
		auto shift = static_cast<uint32_t>(std::bit_width(value)) - 5;
		return (shift + 1) * kSub + static_cast<uint32_t>((value >> shift) - kSub);
	}
	static uint64_t upper_edge(uint32_t bucket)
	{
		if (bucket < kSub)
			return bucket;
		uint32_t shift = bucket / kSub - 1;
		return ((uint64_t{bucket % kSub} + kSub + 1) << shift) - 1;
	}

	std::array<std::atomic<uint64_t>, 61 * kSub> buckets_{};
};

} // namespace cxlkv
