// SPDX-License-Identifier: LGPL-2.1-or-later
#include "core/advice.h"

#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

constexpr uint32_t kBytes = 100;
constexpr uint64_t kMs = 1'000'000, kSecond = 1000 * kMs;

ObjectKey key(uint64_t number)
{
	ObjectKey result;

	result.key[0] = number;
	return result;
}

class AdviceTest : public ::testing::Test {
protected:
	/* Ten blocks; above 9 that are here, down to 8. */
	AdviceBook book_{{.bytes = 1000, .high_permil = 900, .low_permil = 800, .ack_ns = kSecond}};
	uint64_t now_ = 1000 * kSecond;

	void put(uint64_t first, uint64_t nr)
	{
		for (uint64_t i = first; i < first + nr; i++)
			EXPECT_EQ(book_.report(key(i), kBytes, true, now_), 0);
	}
	std::vector<Advice> take(size_t max = 100)
	{
		return book_.take(max, now_, [](const ObjectKey &) { return true; });
	}
};

TEST_F(AdviceTest, FullTierDemotesTheLongestUnusedDownToItsLowMark)
{
	put(0, 9);
	EXPECT_TRUE(take().empty()) << "at the mark is not above it";
	now_ += 10 * kSecond;
	put(9, 1);
	for (uint64_t i = 2; i < 10; i++)
		book_.used(key(i), kBytes, 0.5, now_);
	now_ += kSecond;
	auto advice = take();
	ASSERT_EQ(advice.size(), 2u);
	EXPECT_FALSE(advice[0].promote || advice[1].promote);
	EXPECT_EQ(advice[0].key.key[0] + advice[1].key.key[0], 1u) << "blocks 0 and 1";
	EXPECT_TRUE(take().empty()) << "what is on its way counts";
	EXPECT_TRUE(book_.end(advice[0].id, true, now_));
	EXPECT_FALSE(book_.end(advice[0].id, true, now_)) << "once";
	EXPECT_TRUE(book_.end(advice[1].id, true, now_));
	EXPECT_EQ(book_.stats().bytes, 800u);
	EXPECT_EQ(book_.stats().nr_done, 2u);
	EXPECT_EQ(book_.nr_open(), 0u);
}

TEST_F(AdviceTest, RefusedIsCountedAndAskedOfAnother)
{
	put(0, 10);
	now_ += kSecond;
	auto first = take();
	ASSERT_EQ(first.size(), 2u);
	for (const Advice &advice : first)
		EXPECT_TRUE(book_.end(advice.id, false, now_));
	EXPECT_EQ(book_.stats().nr_refused, 2u);
	EXPECT_EQ(book_.stats().bytes, 1000u) << "refused is still there";
	auto second = take();
	ASSERT_EQ(second.size(), 2u);
	for (const Advice &a : first)
		for (const Advice &b : second)
			EXPECT_NE(a.key, b.key) << "not again before ack_ns";
}

TEST_F(AdviceTest, UnansweredExpiresAndIsCounted)
{
	put(0, 10);
	now_ += kSecond;
	auto advice = take();
	ASSERT_EQ(advice.size(), 2u);
	EXPECT_EQ(book_.next_expiry_ns(), now_ + kSecond);
	now_ += kSecond - 1;
	book_.expire(now_);
	EXPECT_EQ(book_.stats().nr_expired, 0u);
	now_++;
	book_.expire(now_);
	EXPECT_EQ(book_.stats().nr_expired, 2u);
	EXPECT_EQ(book_.stats().nr_refused, 0u);
	EXPECT_EQ(book_.nr_open(), 0u);
	EXPECT_FALSE(book_.end(advice[0].id, true, now_)) << "too late";
	EXPECT_EQ(take().size(), 2u) << "the tier is as full as before";
}

TEST_F(AdviceTest, WantedBlockComesWhereThereIsRoomAndSomethingToCome)
{
	put(0, 7);
	book_.used(key(50), kBytes, 1, now_);
	book_.used(key(51), kBytes, 1, now_);
	auto advice = book_.take(100, now_, [](const ObjectKey &k) { return k.key[0] == 50; });
	ASSERT_EQ(advice.size(), 1u);
	EXPECT_TRUE(advice[0].promote);
	EXPECT_EQ(advice[0].key, key(50));
	EXPECT_TRUE(book_.end(advice[0].id, true, now_));
	EXPECT_EQ(book_.stats().nr_blocks, 8u);
	now_ += 100 * kSecond;
	EXPECT_TRUE(take().empty()) << "nobody used 51 for so long: it is wanted no more";
}

TEST_F(AdviceTest, DemoteComesBeforePromoteWhereItIsFull)
{
	put(0, 9);
	now_ += 100 * kSecond;
	book_.used(key(50), kBytes, 1, now_);
	auto advice = take();
	ASSERT_EQ(advice.size(), 1u);
	EXPECT_FALSE(advice[0].promote);
	EXPECT_TRUE(book_.end(advice[0].id, true, now_));
	advice = take();
	ASSERT_EQ(advice.size(), 1u);
	EXPECT_TRUE(advice[0].promote);
	EXPECT_EQ(advice[0].key, key(50));
}

TEST_F(AdviceTest, BlocksInUseDoNotMakeRoomForEachOther)
{
	put(0, 9);
	for (uint64_t i = 0; i < 9; i++)
		book_.used(key(i), kBytes, 1, now_);
	book_.used(key(50), kBytes, 1, now_);
	EXPECT_TRUE(take().empty());
}

TEST_F(AdviceTest, NoMoreThanAskedForTheMostWantedFirst)
{
	put(0, 6);
	book_.used(key(50), kBytes, 0.2F, now_);
	book_.used(key(51), kBytes, 0.9F, now_);
	book_.used(key(52), kBytes, 0.5F, now_);
	for (uint64_t next : {51, 52, 50}) {
		auto advice = take(1);
		ASSERT_EQ(advice.size(), 1u);
		EXPECT_TRUE(advice[0].promote);
		EXPECT_EQ(advice[0].key, key(next));
	}
	EXPECT_TRUE(take(1).empty());
}

TEST_F(AdviceTest, WhatIsReportedAndAcknowledgedCountsOnce)
{
	put(0, 7);
	book_.used(key(50), kBytes, 1, now_);
	auto advice = take();
	ASSERT_EQ(advice.size(), 1u);
	put(50, 1);
	put(50, 1);
	EXPECT_TRUE(book_.end(advice[0].id, true, now_));
	EXPECT_EQ(book_.stats().nr_blocks, 8u);
	EXPECT_EQ(book_.stats().bytes, 800u);
	book_.used(key(50), kBytes, 1, now_);
	EXPECT_TRUE(take().empty()) << "it is there";
}

TEST_F(AdviceTest, CountersAddUpWhateverTheEngineSays)
{
	uint64_t random = 7;
	std::vector<uint64_t> ids;

	for (int i = 0; i < 100000; i++) {
		random = random * 6364136223846793005 + 1442695040888963407;
		const uint64_t what = random >> 60, number = random >> 40 & 31;
		now_ += random >> 33 & 0xffffff;
		if (what < 5)
			book_.report(key(number), kBytes, what < 3, now_);
		else if (what < 9)
			book_.used(key(number), kBytes, 0.5, now_);
		else if (what < 12)
			for (const Advice &advice : take(what - 8))
				ids.push_back(advice.id);
		else if (what < 15 && !ids.empty())
			book_.end(ids[random % ids.size()], what & 1, now_);
		else
			book_.expire(now_);
	}
	const auto s = book_.stats();
	EXPECT_EQ(s.nr_promotes + s.nr_demotes,
		  s.nr_done + s.nr_refused + s.nr_expired + book_.nr_open());
	EXPECT_GT(s.nr_done, 10u);
	for (uint64_t i = 0; i < 32; i++)
		book_.report(key(i), kBytes, false, now_);
	EXPECT_EQ(book_.stats().bytes, 0u);
	EXPECT_EQ(book_.stats().nr_blocks, 0u);
}

} // namespace
