/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sampling interval follows how fast the touched set changes, within the budget. */
#include "core/sample_interval.h"

#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

constexpr uint32_t kBlocks = 4096, kPermil = 20;
constexpr uint64_t kPassNs = 1'000'000; /* 20 permil of 50 ms */

/* Intervals that touch 64 blocks from there on; each moves the set by so many. */
uint32_t run(SampleInterval &interval, uint32_t &first, int nr, uint32_t by,
	     uint64_t pass_ns = kPassNs)
{
	for (int i = 0; i < nr; i++, first = (first + by) % (kBlocks - 64)) {
		interval.touched(first, ~0ull);
		interval.end(pass_ns, kPermil);
	}
	return interval.interval_ms();
}

TEST(SampleInterval, IsShortWhileTheTouchedSetChangesAndLongAgainWhenItDoesNot)
{
	SampleInterval interval(kBlocks, 1000, 125);
	uint32_t first = 7;

	EXPECT_EQ(run(interval, first, 20, 0), 1000u);
	EXPECT_EQ(run(interval, first, 2, 32), 500u) << "half of it is new";
	EXPECT_EQ(run(interval, first, 10, 32), 125u);
	EXPECT_EQ(run(interval, first, 30, 8), 125u) << "an eighth: neither";
	EXPECT_EQ(run(interval, first, 30, 0), 1000u);
}

TEST(SampleInterval, OneBlockInSixteenIsCalm)
{
	SampleInterval interval(kBlocks, 1000, 125);
	uint32_t first = 0;

	run(interval, first, 10, 64);
	EXPECT_EQ(run(interval, first, 30, 4), 1000u);
}

TEST(SampleInterval, IsNoShorterThanTheBudgetAllows)
{
	SampleInterval interval(kBlocks, 1000, 10);
	uint32_t first = 0;

	EXPECT_EQ(run(interval, first, 40, 64, 8 * kPassNs), 500u) << "20 permil of 400 ms";
	EXPECT_EQ(run(interval, first, 40, 64), 62u);
	EXPECT_EQ(run(interval, first, 1, 64, 3 * kPassNs), 124u) << "the arena grew";
	EXPECT_EQ(run(interval, first, 5, 64, 100 * kPassNs), 1000u) << "never above the longest";
}

TEST(SampleInterval, AClientThatStoppedIsCalm)
{
	SampleInterval interval(kBlocks, 1000, 125);
	uint32_t first = 0;

	run(interval, first, 10, 64);
	for (int i = 0; i < 30; i++)
		interval.end(kPassNs, kPermil);
	EXPECT_EQ(interval.interval_ms(), 1000u);
}

TEST(SampleInterval, StaysWhereShortestAndLongestAreEqual)
{
	SampleInterval interval(kBlocks, 1000, 1000);
	uint32_t first = 0;

	EXPECT_EQ(run(interval, first, 20, 64), 1000u);
}

} // namespace
