/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is used in warm takes the place of what is not in a hot tier that is full. */
#include "lib/policy_fixture.h"

using namespace cxlkv;

namespace {

/* 48 blocks of slot 0 in hot, as many as it takes, and 16 in warm: those of head 3. */
class PolicyExchangeTest : public PolicyTest {
protected:
	void SetUp() override
	{
		start();
		policy->open_session(1, 0, now_ms);
		make_slot(0);
		moved(48, 16, Where::Warm);
		now_ms += 1000;
	}

	void sample(uint64_t touched)
	{
		now_ms += 1000;
		policy->sample(1, 0, touched, 0, now_ms);
	}
	std::vector<Order> plan_full(uint32_t high = 48, uint32_t used = 48, uint32_t low = 0)
	{
		PlanInput in = hot_of(used, 60, high, low ? low : high);
		in.warm = {16 * block_bytes, 100 * block_bytes, 90 * block_bytes, 80 * block_bytes};
		return plan(in);
	}

	static constexpr uint64_t warm_blocks = 0xffull << 48; /* eight of them */
	static constexpr uint64_t hot_blocks = 0xffull;        /* and eight that are hot */
};

} // namespace

TEST_F(PolicyExchangeTest, UsedOnceIsWorthFreeRoomAndNobodysPlace)
{
	sample(warm_blocks | hot_blocks);
	EXPECT_TRUE(blocks(plan_full(), Action::Demote).empty());
	sample(warm_blocks | hot_blocks);
	EXPECT_EQ(blocks(plan_full(), Action::Demote).size(), 8u);
}

/* Of more, which two should it be? */
TEST_F(PolicyExchangeTest, UsedOnceComesWhereThereIsRoomForAllThatWas)
{
	sample(warm_blocks);
	EXPECT_TRUE(plan_full(50, 48, 48).empty());
	sample(3ull << 60);
	auto orders = plan_full(50, 48, 48);
	EXPECT_EQ(blocks(orders, Action::Promote), (std::set<uint32_t>{60, 61}));
	EXPECT_TRUE(blocks(orders, Action::Demote).empty());
}

TEST_F(PolicyExchangeTest, UsedOnceFillsHotUpToTheLowWatermark)
{
	sample(warm_blocks);
	EXPECT_EQ(blocks(plan_full(55, 48, 53), Action::Promote).size(), 5u);
}

TEST_F(PolicyExchangeTest, WhatIsNotUsedMakesWayAndWhatIsUsedStays)
{
	for (int i = 0; i < 3; i++)
		sample(warm_blocks | hot_blocks);
	auto down = blocks(plan_full(), Action::Demote);
	EXPECT_EQ(down.size(), 8u);
	for (uint32_t block : down)
		EXPECT_GE(block, 8u);
}

/* Once as it was written, and once by a reader that passes long after. */
TEST_F(PolicyExchangeTest, UsedAgainMuchLaterIsUsedOnce)
{
	sample(warm_blocks | hot_blocks);
	for (int i = 0; i < 4; i++)
		sample(hot_blocks);
	sample(warm_blocks | hot_blocks);
	EXPECT_TRUE(blocks(plan_full(), Action::Demote).empty());
}

/* A hot set that jumps: what was used much a moment ago stands for nothing, since nothing like it
 * was ever used after a pause. */
TEST_F(PolicyExchangeTest, WhatIsUsedNoMoreMakesWayHoweverMuchItWasUsed)
{
	moved(64, 64, Where::Warm); /* of which nothing is ever used: how else were it known */
	for (int i = 0; i < 50; i++) {
		sample((1ull << 48) - 1);
		plan_full();
	}
	for (int i = 0; i < 2; i++)
		sample(warm_blocks);
	EXPECT_EQ(blocks(plan_full(), Action::Demote).size(), 8u);
}

TEST_F(PolicyExchangeTest, WhatWasMovedStaysForAFewSamples)
{
	for (int i = 0; i < 2; i++)
		sample(warm_blocks);
	auto down = plan_full();
	ASSERT_EQ(blocks(down, Action::Demote).size(), 8u);
	obey(down);
	obey(plan_full(48, 40));
	uint64_t went = 0;
	for (uint32_t block : blocks(down, Action::Demote))
		went |= 1ull << block;
	for (int i = 0; i < 4; i++) {
		sample(went);
		EXPECT_TRUE(plan_full().empty()) << i;
	}
	for (int i = 0; i < 2; i++)
		sample(went);
	EXPECT_EQ(blocks(plan_full(), Action::Demote).size(), 8u);
}

TEST_F(PolicyExchangeTest, AmongEqualsNobodyMoves)
{
	for (int i = 0; i < 4; i++)
		sample(warm_blocks | ((1ull << 48) - 1));
	auto orders = plan_full();
	EXPECT_TRUE(blocks(orders, Action::Demote).empty());
	EXPECT_TRUE(blocks(orders, Action::Promote).empty());
}

TEST_F(PolicyExchangeTest, WhatThePlanOrderedAwayFromWarmIsNotPromotedAsWell)
{
	sample(warm_blocks);
	PlanInput in = hot_of(48, 100, 90, 80);
	in.warm = {16 * block_bytes, 100 * block_bytes, 90 * block_bytes, 80 * block_bytes};
	in.drain_warm = true;
	EXPECT_EQ(blocks(plan(in), Action::Promote).size(), 16u);
}

/* A reader that goes through everything once, beside a set that is read all the time. */
TEST_F(PolicyExchangeTest, AScanMovesNothing)
{
	for (uint32_t block = 48; block < 64; block += 2) {
		sample(hot_blocks | 3ull << block);
		EXPECT_TRUE(plan_full().empty());
	}
}

TEST_F(PolicyExchangeTest, WhatIsOnItsWayDownIsNotOrderedAgain)
{
	for (int i = 0; i < 3; i++)
		sample(warm_blocks);
	EXPECT_EQ(blocks(plan_full(), Action::Demote).size(), 8u);
	now_ms += 20;
	EXPECT_TRUE(blocks(plan_full(), Action::Demote).empty());
}

/* Masses of attention over many blocks are small, however often each of them is used. */
TEST_F(PolicyExchangeTest, WhatTheEngineUsesInEachStepComesHoweverSmallItsMass)
{
	std::set<uint32_t> down;
	for (uint32_t step = 1; step <= 100 && down.empty(); step++) {
		hint(CXL_KV_HINT_POSITION, 0, 1);
		score(0, 3, 1, 15, 0.05);
		down = blocks(plan_full(), Action::Demote);
	}
	EXPECT_GE(down.size(), 14u);
}

/* Of two that are used now and then, who was used sooner again is used more often. */
TEST_F(PolicyExchangeTest, WhatTheEngineUsesAgainSoonerThanAnotherWaitsTakesItsPlace)
{
	auto step = [&](uint64_t head_of_use) {
		hint(CXL_KV_HINT_POSITION, 0, 1);
		if (head_of_use < 4)
			score(0, static_cast<uint32_t>(head_of_use), 0, 16, 0.05);
		now_ms += 20;
	};
	/* Heads 0 to 2, which are hot, each 8th step; all of it often enough to be known. */
	for (uint32_t i = 0; i < 200; i++) {
		step(i % 8 < 3 ? i % 8 : 4);
		plan_full();
	}
	now_ms += 6000;
	step(3); /* after 200 steps */
	EXPECT_TRUE(blocks(plan_full(), Action::Demote).empty());
	for (int i = 0; i < 4; i++)
		step(4);
	step(3); /* after 5: but the others come each 8th step */
	for (int i = 0; i < 9; i++)
		step(4);
	step(3);
	EXPECT_GE(blocks(plan_full(), Action::Demote).size(), 1u);
}

TEST_F(PolicyExchangeTest, APrefillTakesNobodysPlace)
{
	std::set<uint32_t> down;
	policy->open_session(1, 1, now_ms);
	moved(64, 16, Where::Warm);
	now_ms += 1000;
	for (uint32_t step = 1; step <= 200 && down.empty(); step++) {
		const bool decodes = step > 100;
		hint(CXL_KV_HINT_PHASE, 1, decodes);
		hint(CXL_KV_HINT_POSITION, 1, step);
		score(1, 0, 1, 15, 0.05);
		down = blocks(plan_full(), Action::Demote);
		EXPECT_TRUE(decodes || down.empty()) << step;
	}
	EXPECT_GE(down.size(), 14u);
}

/* An engine that goes through everything once, beside what it uses in each step. */
TEST_F(PolicyExchangeTest, WhatTheEngineUsesForTheFirstTimeTakesNobodysPlace)
{
	for (uint32_t step = 1; step <= 200; step++) {
		hint(CXL_KV_HINT_POSITION, 0, 1);
		score(0, 0, 0, 8, 0.02);
		if (step > 184)
			score(0, 3, step - 185, 1, 0.1);
		now_ms += 20;
		EXPECT_TRUE(plan_full().empty()) << step;
	}
}

/* In a long context an even share of the attention is small. */
TEST_F(PolicyExchangeTest, WhatGetsMoreThanItsShareIsUsedHoweverLongTheContext)
{
	Geometry g = small_geometry(1);
	g.tokens_per_slot = 16 * 400; /* blocks of 16 tokens */
	start(plain(), g);
	policy->open_session(1, 0, now_ms);
	moved(0, 4 * 400, Where::Warm);
	for (uint32_t step = 1; step <= 3; step++) {
		hint(CXL_KV_HINT_POSITION, 0, step);
		score(0, 0, 10, 200, 0.005);
		score(0, 0, 300, 10, 0.001);
		score(0, 1, 0, 400, 1.0 / 400); /* its even share */
	}
	EXPECT_EQ(policy->accesses()[static_cast<size_t>(Where::Warm)], 3u * 200);
}

/* Of a watermark, which asks for less than what room that is needed at once does. */
TEST_F(PolicyExchangeTest, WhatIsUsedInEachStepIsKeptHoweverSmallItsMass)
{
	for (uint32_t step = 1; step <= 100; step++) {
		hint(CXL_KV_HINT_POSITION, 0, step);
		for (uint32_t head = 0; head < 3; head++)
			score(0, head, 0, 8, 0.05);
		plan_full();
		now_ms += 20;
	}
	const auto down = blocks(plan_full(16), Action::Demote);
	EXPECT_EQ(down.size(), 24u);
	for (uint32_t block : down)
		EXPECT_GE(block % 16, 8u);
}

TEST_F(PolicyExchangeTest, AMoveBudgetThatIsUsedUpSendsNothingToCold)
{
	PlanInput in = hot_of(48, 40, 40, 40);
	in.warm = {16 * block_bytes, 100 * block_bytes, 90 * block_bytes, 80 * block_bytes};
	in.move_budget_bytes = 3 * block_bytes;
	auto orders = plan(in);
	EXPECT_EQ(blocks(orders, Action::Demote).size(), 3u);
	EXPECT_TRUE(blocks(orders, Action::Spill).empty()) << "warm has room, only not at once";
}
