/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client that gives no hints touches 64 KiB of a 256 MiB arena: sampling alone
 * has to find it. Needs a daemon with the module (sampling.sh starts it).
 */
#include "cxl_kv.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <set>
#include <thread>

namespace {

constexpr uint32_t kBlocks = 65536; /* of one page: 256 MiB */
constexpr uint32_t kHot = 16;       /* 64 KiB, spread over the arena */

class HotSetTest : public testing::Test {
protected:
	void SetUp() override
	{
		cxl_kv_options options{};
		options.size = sizeof(options);
		ASSERT_EQ(cxl_kv_open(&options, &kv_), 0);
		cxl_kv_geometry geometry{1, 1, 1, 32, 2, 32, kBlocks * 32, 4096};
		ASSERT_EQ(cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_), 0);
		ASSERT_EQ(cxl_kv_session_open(arena_, 0, nullptr), 0);
		for (uint32_t first = 0; first < kBlocks; first += 4096) {
			cxl_kv_range range{0, 0, first, 4096};
			ASSERT_EQ(cxl_kv_make(arena_, &range, 1, 60000), 0);
		}
	}
	void TearDown() override { cxl_kv_close(kv_); }

	bool is_hot(uint32_t block) const
	{
		return (cxl_kv_block_word(arena_, 0, 0, block) & CXL_KV_WORD_TIER_MASK) >>
			       CXL_KV_WORD_TIER_SHIFT ==
		       CXL_KV_TIER_HOT;
	}
	std::set<uint32_t> hot_blocks() const
	{
		std::set<uint32_t> hot;
		for (uint32_t block = 0; block < kBlocks; block++)
			if (is_hot(block))
				hot.insert(block);
		return hot;
	}

	cxl_kv *kv_ = nullptr;
	cxl_kv_arena *arena_ = nullptr;
};

} // namespace

TEST_F(HotSetTest, that_jumps_is_found_within_three_intervals_without_hints)
{
	using Clock = std::chrono::steady_clock;
	const char *text = getenv("CXL_KV_SAMPLING__INTERVAL_MS");
	const auto interval = std::chrono::milliseconds(text ? atoi(text) : 1000);
	std::set<uint32_t> first, second;
	for (uint32_t i = 0; i < kHot; i++) {
		first.insert((i * 40503u + 977u) % kBlocks);
		second.insert((i * 40503u + 20011u) % kBlocks);
	}
	auto nr_hot = [&](const std::set<uint32_t> &set) {
		return std::ranges::count_if(set, [&](uint32_t block) { return is_hot(block); });
	};
	/* Touches the set for so long, or until all of it is hot. */
	auto touch = [&](const std::set<uint32_t> &set, Clock::duration limit, bool until_hot) {
		volatile char sink = 0;
		auto begin = Clock::now();
		while (!(until_hot && nr_hot(set) == kHot) && Clock::now() - begin < limit) {
			for (uint32_t block : set)
				sink = sink +
				       *static_cast<char *>(cxl_kv_block(arena_, 0, 0, block));
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
		return std::chrono::duration<double>(Clock::now() - begin) / interval;
	};

	/* Making the blocks wrote them all: it takes some intervals until that counts as over. */
	double warm_up = touch(first, 90 * interval, true);
	ASSERT_EQ(nr_hot(first), kHot);

	/* And until what was made last does not come to be hot any more. */
	std::set<uint32_t> before;
	for (int i = 0; i < 90; i++) {
		before = hot_blocks();
		touch(first, interval, false);
		if (std::ranges::includes(before, hot_blocks()))
			break;
	}
	double intervals = touch(second, 10 * interval, true);
	uint32_t nr_new = 0;
	for (uint32_t block : hot_blocks())
		nr_new += !before.contains(block) || second.contains(block);
	auto nr_right = nr_hot(second);
	printf("# first set found after %.1f intervals, the second after %.1f of %ld ms: recall "
	       "%.3f, precision %.3f\n",
	       warm_up, intervals, static_cast<long>(interval.count()),
	       static_cast<double>(nr_right) / kHot,
	       static_cast<double>(nr_right) / std::max(nr_new, 1u));
	EXPECT_EQ(nr_right, kHot);
	EXPECT_LE(intervals, 3.5); /* the touches begin in the middle of an interval */
	EXPECT_GE(static_cast<double>(nr_right), 0.9 * nr_new);
}
