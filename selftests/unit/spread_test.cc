/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shares of several nodes by weight. */
#include "core/spread.h"

#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

constexpr auto always = [](size_t) { return true; };

std::vector<uint64_t> shares(Spread &spread, int nr, uint64_t bytes = 1 << 20)
{
	std::vector<uint64_t> got(3);
	for (int i = 0; i < nr; i++)
		got[spread.next(bytes, always)] += bytes;
	return got;
}

TEST(Spread, SharesFollowTheWeightsAtEveryMoment)
{
	Spread spread({3, 1, 2});
	std::vector<uint64_t> got(3);
	for (int i = 1; i <= 600; i++) {
		got[spread.next(1, always)]++;
		EXPECT_NEAR(double(got[0]), i * 3 / 6.0, 1.5) << i;
		EXPECT_NEAR(double(got[1]), i * 1 / 6.0, 1.5) << i;
	}
	EXPECT_EQ(got, (std::vector<uint64_t>{300, 100, 200}));
}

TEST(Spread, BytesCountNotMoves)
{
	Spread spread({1, 1});
	uint64_t got[2] = {};
	for (int i = 0; i < 300; i++) {
		uint64_t bytes = i % 3 ? 4096 : 1 << 20;
		got[spread.next(bytes, always)] += bytes;
	}
	EXPECT_NEAR(double(got[0]), double(got[1]), 1 << 20);
}

TEST(Spread, AFullNodeIsPassedOverAndDoesNotCatchUpInABurst)
{
	Spread spread({1, 1});
	for (int i = 0; i < 100; i++)
		EXPECT_EQ(spread.next(1, [](size_t node) { return node == 1; }), 1u);
	auto got = shares(spread, 100, 1);
	EXPECT_NEAR(double(got[0]), 50, 1) << "from now on, as its weight says";
}

TEST(Spread, WhereNoneHasRoomTheOneWhoseTurnItIsGetsIt)
{
	Spread spread({1, 1});
	size_t first = spread.next(1, [](size_t) { return false; });
	EXPECT_NE(spread.next(1, [](size_t) { return false; }), first);
}

} // namespace
