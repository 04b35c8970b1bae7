/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One pass of the module is one step, however its reports come, and one that reports nothing too.
 */
#include "core/pass_watch.h"

#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

constexpr uint32_t kIntervalMs = 1000;

TEST(PassWatch, APassIsOverWhenReportsBeginBelow)
{
	PassWatch watch(0);

	EXPECT_FALSE(watch.report(0, 1, 5));
	EXPECT_FALSE(watch.report(64, 1, 5));
	EXPECT_FALSE(watch.report(640, 1, 300));
	EXPECT_TRUE(watch.report(64, 1, 1005));
	EXPECT_FALSE(watch.report(640, 1, 1005));
	EXPECT_TRUE(watch.report(0, 1, 1900));
}

TEST(PassWatch, TheSamePagesAgainAreAnotherPassAndOtherPagesOfTheSameWordAreNot)
{
	PassWatch watch(0);

	watch.report(64, 0xf, 5);
	EXPECT_TRUE(watch.report(64, 0xf, 1005));
	EXPECT_FALSE(watch.report(64, 0xf0, 1005)) << "mapped by two areas";
	EXPECT_TRUE(watch.report(64, 0x10, 2005));
}

TEST(PassWatch, WhoTouchesNothingIsAskedOnceAnIntervalAndCountedByTheAnswers)
{
	PassWatch watch(0);

	watch.report(64, 1, 0);
	EXPECT_FALSE(watch.is_late(1500, kIntervalMs)) << "the next may be on its way";
	ASSERT_TRUE(watch.is_late(2000, kIntervalMs));
	EXPECT_FALSE(watch.answer(7, 2000)) << "since when?";
	EXPECT_FALSE(watch.is_late(2900, kIntervalMs));
	ASSERT_TRUE(watch.is_late(3000, kIntervalMs));
	EXPECT_TRUE(watch.answer(8, 3000));
	ASSERT_TRUE(watch.is_late(4000, kIntervalMs));
	EXPECT_TRUE(watch.answer(9, 4000));
	EXPECT_FALSE(watch.report(64, 1, 4010)) << "it was counted as it began";
	EXPECT_TRUE(watch.report(64, 1, 5010));
}

/* A small budget, a large arena. */
TEST(PassWatch, APassOfManyIntervalsIsOne)
{
	PassWatch watch(0);

	watch.report(0, 1, 0);
	for (uint64_t now = 2000; now <= 50'000; now += kIntervalMs) {
		ASSERT_TRUE(watch.is_late(now, kIntervalMs));
		EXPECT_FALSE(watch.answer(3, now));
		EXPECT_FALSE(watch.report(now, 1, now));
	}
	EXPECT_TRUE(watch.report(0, 1, 50'500));
}

/* Each pass finds something above what the last one found. */
TEST(PassWatch, PassesThatOnlyGoOnAreCountedByTheAnswers)
{
	PassWatch watch(0);
	int nr = 0;

	watch.report(0, 1, 0);
	for (uint64_t pass = 1; pass <= 20; pass++) {
		const uint64_t now = pass * kIntervalMs;
		nr += watch.is_late(now, kIntervalMs) && watch.answer(pass, now);
		nr += watch.report(64 * pass, 1, now);
	}
	EXPECT_GE(nr, 18);
}

} // namespace
