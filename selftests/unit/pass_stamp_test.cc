/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reports of one pass have one time, however they come, and those of the next another. */
#include "core/pass_stamp.h"

#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

constexpr uint32_t kIntervalMs = 1000;

TEST(PassStamp, APassIsOverWhenReportsBeginBelow)
{
	PassStamp stamp;

	EXPECT_EQ(stamp.of(0, 1, 5000, kIntervalMs), 5000u);
	EXPECT_EQ(stamp.of(64, 1, 5000, kIntervalMs), 5000u);
	EXPECT_EQ(stamp.of(640, 1, 5300, kIntervalMs), 5000u);
	EXPECT_EQ(stamp.of(64, 1, 6005, kIntervalMs), 6005u);
	EXPECT_EQ(stamp.of(640, 1, 6100, kIntervalMs), 6005u);
	EXPECT_EQ(stamp.of(0, 1, 6900, kIntervalMs), 6900u);
}

TEST(PassStamp, TheSamePagesAgainAreAnotherPassAndOthersOfTheirWordAreNot)
{
	PassStamp stamp;

	EXPECT_EQ(stamp.of(64, 0xf, 5000, kIntervalMs), 5000u);
	EXPECT_EQ(stamp.of(64, 0xf, 6005, kIntervalMs), 6005u);
	EXPECT_EQ(stamp.of(64, 0xf0, 6010, kIntervalMs), 6005u) << "mapped by two areas";
	EXPECT_EQ(stamp.of(64, 0x1, 7000, kIntervalMs), 7000u);
}

TEST(PassStamp, OneThatOnlyGoesOnIsAnotherAfterTwoIntervals)
{
	PassStamp stamp;
	uint64_t last = 0, nr = 0;

	for (uint64_t second = 1; second <= 30; second++) {
		const uint64_t begun = stamp.of(64 * second, 1, 1000 * second, kIntervalMs);
		EXPECT_LE(1000 * second - begun, 2000u);
		nr += begun != last;
		last = begun;
	}
	EXPECT_EQ(nr, 10u);
}

} // namespace
