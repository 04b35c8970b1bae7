/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Budgets of heads: all of them compete for one pool, where a block that earns
 * more hits takes the place of one that earns fewer, down to a floor.
 */
#include "lib/policy_fixture.h"

using namespace cxlkv;

namespace {

constexpr uint32_t capacity = 8, per_head = 16;

/*
 * A hot tier of 8 blocks. One head reads 8 blocks in turn, two a step: each is
 * needed again after 4 steps. Another reads a block a step, which it needs
 * again after 15. LRU keeps what was read last, of either.
 */
class HeadsTest : public PolicyTest {
protected:
	void start_heads(double floor)
	{
		PolicyOptions options = plain();
		options.head_floor = floor;
		start(options);
		for (uint32_t head = 0; head < 2; head++)
			moved(head * per_head, 15, Where::Hot);
		for (uint32_t head = 0; head < 2; head++)
			moved(head * per_head, 15, Where::Cold);
	}

	void run(uint32_t nr_steps, uint32_t looping, uint32_t streaming)
	{
		nr_hits = 0;
		fewest = capacity;
		for (uint32_t i = 0; i < nr_steps; i++, step++) {
			now_ms += 1000;
			hint(CXL_KV_HINT_POSITION, 0, 255);
			for (uint32_t b : {step % 4 * 2, step % 4 * 2 + 1})
				nr_hits += read(looping, b, 0.5);
			read(streaming, step % 15, 0.02);
			now_ms += 1000; /* so that nothing is too young to leave */
			const auto nr = static_cast<uint32_t>(hot.size());
			for (const Order &order : plan(hot_of(nr, capacity, capacity, capacity))) {
				policy->moved(order.extent, Where::Cold, now_ms);
				for (uint32_t b = 0; b < order.extent.nr; b++)
					hot.erase(order.extent.first + b);
			}
			ASSERT_EQ(hot.size(), std::min<size_t>(capacity, hot.size()));
			fewest = std::min(fewest, policy->heads(1)[streaming].nr_hot);
		}
	}

	/* Was it there? */
	bool read(uint32_t head, uint32_t block, double mass)
	{
		const bool fetched = hot.insert(head * per_head + block).second;
		if (fetched)
			moved(head * per_head + block, 1, Where::Hot);
		score(0, head, block, 1, mass);
		return !fetched;
	}

	std::set<uint32_t> hot;
	uint32_t step = 0;
	uint32_t nr_hits = 0; /* of the head that loops */
	uint64_t fewest = 0;  /* hot blocks of the one that streams, after any step */
};

} // namespace

TEST_F(HeadsTest, RoomGoesToTheHeadWhereABlockMoreEarnsMore)
{
	start_heads(0);
	run(600, 0, 1);
	run(100, 0, 1);
	EXPECT_EQ(nr_hits, 200u) << "all that it reads is there";
	EXPECT_EQ(policy->heads(1)[0].nr_hot, capacity);
	EXPECT_EQ(fewest, 0u) << "what the other reads leaves at once";
}

TEST_F(HeadsTest, ThePoolIsSharedAnewWhenHeadsChange)
{
	start_heads(0);
	run(600, 0, 1);
	run(20, 1, 0);
	run(100, 1, 0);
	EXPECT_EQ(nr_hits, 200u);
	EXPECT_EQ(policy->heads(1)[1].nr_hot, capacity);
	EXPECT_EQ(policy->heads(1)[0].nr_hot, 0u);
}

TEST_F(HeadsTest, AFloorIsKeptWhateverItsBlocksAreWorth)
{
	/* The mean of four heads is 2 blocks. */
	start_heads(1);
	run(600, 0, 1);
	run(100, 0, 1);
	EXPECT_EQ(fewest, 2u);
	EXPECT_EQ(policy->heads(1)[0].nr_hot, capacity - 2);
	run(100, 1, 0);
	EXPECT_EQ(policy->heads(1)[1].nr_hot, capacity - 2) << "the rest is shared as before";
	EXPECT_EQ(policy->heads(1)[0].nr_hot, 2u);
}
