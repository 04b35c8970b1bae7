/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How often the accesses of one arena are sampled. Where a quarter or more of what
 * is touched in an interval was not touched in the one before, the next is half as
 * long, as far as a pass over the page tables fits into its share of CPU time;
 * where it is a sixteenth or less four times in a row, the next is twice as long.
 * Pure: what was touched, and what a pass takes, are passed in.
 */
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace cxlkv {

class SampleInterval {
public:
	/* It begins with the longest. Equal: it stays. */
	SampleInterval(uint32_t nr_blocks, uint32_t longest_ms, uint32_t shortest_ms)
	    : now_(nr_blocks / 64 + 2), before_(now_.size()), longest_ms_(longest_ms),
	      shortest_ms_(std::min(shortest_ms, longest_ms)), interval_ms_(longest_ms)
	{
	}

	/* Bit i: block first + i, which is one of the arena's. */
	void touched(uint32_t first, uint64_t blocks)
	{
		now_[first / 64] |= blocks << first % 64;
		if (first % 64)
			now_[first / 64 + 1] |= blocks >> (64 - first % 64);
	}

	/* The interval is over. pass_ns: CPU time of a pass; budget_permil: of one CPU. */
	void end(uint64_t pass_ns, uint32_t budget_permil)
	{
		auto fits = [&](uint32_t ms) {
			return pass_ns <= uint64_t{ms} * budget_permil * 1000;
		};
		const uint32_t last_ms = interval_ms_;
		const auto [nr, nr_new] = count();

		if (!comparable_) {
			comparable_ = true;
		} else if (nr_new && nr_new * 4 >= nr) {
			nr_calm_ = 0;
			if (fits(interval_ms_ / 2))
				interval_ms_ = std::max(shortest_ms_, interval_ms_ / 2);
		} else if (nr_new * 16 > nr) {
			nr_calm_ = 0;
		} else if (++nr_calm_ == calm_enough) {
			nr_calm_ = 0;
			interval_ms_ = std::min(longest_ms_, interval_ms_ * 2);
		}
		if (!fits(interval_ms_))
			interval_ms_ = std::min(longest_ms_, interval_ms_ * 2);
		/* More is touched in a longer interval: the next one is not like this one. */
		comparable_ &= interval_ms_ == last_ms;
		before_.swap(now_);
		std::ranges::fill(now_, 0);
	}

	[[nodiscard]] uint32_t interval_ms() const { return interval_ms_; }

private:
	static constexpr int calm_enough = 4;

	struct Count {
		uint64_t nr, nr_new;
	};
	[[nodiscard]] Count count() const
	{
		Count count{};

		for (size_t i = 0; i < now_.size(); i++) {
			count.nr += static_cast<uint64_t>(std::popcount(now_[i]));
			count.nr_new += static_cast<uint64_t>(std::popcount(now_[i] & ~before_[i]));
		}
		return count;
	}

	std::vector<uint64_t> now_, before_; /* blocks touched in this interval, in the last */
	uint32_t longest_ms_, shortest_ms_, interval_ms_;
	int nr_calm_ = 0;
	bool comparable_ = false; /* the last interval was as long as this one */
};

} // namespace cxlkv
