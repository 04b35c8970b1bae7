/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The mover's limit over a simulated clock. */
#include "base/pace.h"

#include <deque>
#include <gtest/gtest.h>
#include <random>

using namespace cxlkv;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

/* Somebody who always has more to move: batches of blocks that take some time themselves, and a
 * thread that wakes up late. */
class Busy {
public:
	explicit Busy(uint64_t rate, uint64_t block) : rate_(rate), block_(block) {}

	/* Bytes that moved meanwhile. */
	uint64_t run(uint64_t seconds)
	{
		const uint64_t end = now_ + seconds * kSecond, before = total_;
		while (now_ < end) {
			if (uint64_t wait = pace_.wait_ns(now_)) {
				now_ += wait + random_() % most_late_ns;
				continue;
			}
			uint64_t blocks = std::max<uint64_t>(1, Pace::most_at_once(rate_) / block_);
			uint64_t bytes = (1 + random_() % blocks) * block_;
			now_ += bytes * kSecond / (10 * rate_); /* ten times as fast as the limit */
			moved(bytes);
			pace_.charge(bytes, rate_);
		}
		return total_ - before;
	}
	void idle(uint64_t seconds) { now_ += seconds * kSecond; }
	[[nodiscard]] uint64_t most_in_a_second() const { return most_; }

	static constexpr uint64_t most_late_ns = 20'000'000;

private:
	void moved(uint64_t bytes)
	{
		total_ += bytes;
		window_.emplace_back(now_, bytes);
		in_window_ += bytes;
		for (; window_.front().first + kSecond <= now_; window_.pop_front())
			in_window_ -= window_.front().second;
		most_ = std::max(most_, in_window_);
	}

	Pace pace_;
	const uint64_t rate_, block_;
	uint64_t now_ = 77 * kSecond, total_ = 0, in_window_ = 0, most_ = 0;
	std::deque<std::pair<uint64_t, uint64_t>> window_;
	std::minstd_rand random_{1};
};

TEST(Pace, HoldsTheRateWithinFivePercentOverAnySecondAndOverAll)
{
	for (uint64_t rate : {8'000'000ull, 100'000'000ull, 1'000'000'000ull, 64'000'000'000ull}) {
		constexpr uint64_t block = 65536;
		Busy busy(rate, block);
		EXPECT_NEAR(double(busy.run(60)), double(60 * rate), 0.05 * 60 * double(rate))
			<< rate;
		EXPECT_LE(busy.most_in_a_second(), rate * 105 / 100 + block) << rate;
	}
}

TEST(Pace, WhatWasNotUsedDoesNotAddUpToABurst)
{
	constexpr uint64_t rate = 100'000'000;
	Busy busy(rate, 4096);
	busy.run(3);
	busy.idle(100);
	busy.run(3);
	EXPECT_LE(busy.most_in_a_second(), rate * 105 / 100 + 4096);
}

TEST(Pace, APageThatCostsManyTurnsStillMovesAndIsPaidForAfterwards)
{
	Pace pace;
	uint64_t now = kSecond, moved = 0;

	for (; now < 101 * kSecond; now += 20'000'000) /* 20 bytes a turn */
		if (!pace.wait_ns(now)) {
			pace.charge(4096, 1000);
			moved += 4096;
		}
	EXPECT_NEAR(double(moved), 100'000, 2 * 4096);
}

} // namespace
