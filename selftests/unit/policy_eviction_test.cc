/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What leaves a tier and what stays: watermarks, orders that are out, refusals, pins, windows. */
#include "lib/policy_fixture.h"

using namespace cxlkv;

TEST_F(PolicyTest, NothingIsOrderedBelowTheHighWatermark)
{
	start();
	make_slot(0);
	now_ms += 1000;
	EXPECT_TRUE(plan(hot_of(64, 100, 64, 32)).empty());
}

TEST_F(PolicyTest, OverTheHighWatermarkTheOldestLeaveDownToTheLowOne)
{
	start();
	make_slot(0);
	now_ms += 1000;
	for (uint32_t step = 1; step <= 100; step++) {
		hint(CXL_KV_HINT_POSITION, 0, step);
		touch(0, 8, 8); /* blocks 8..15 of each head are in use */
	}
	auto orders = plan(hot_of(64, 100, 60, 40));
	auto spilled = blocks(orders, Action::Spill);
	EXPECT_EQ(spilled.size(), 24u);
	for (uint32_t b : spilled)
		EXPECT_LT(b % 16, 8u);
}

TEST_F(PolicyTest, WantedRoomIsMadeOnTop)
{
	start();
	make_slot(0);
	now_ms += 1000;
	PlanInput in = hot_of(64, 100, 80, 80);
	EXPECT_TRUE(plan(in).empty());
	in.wanted_hot_bytes = 26 * block_bytes;
	EXPECT_EQ(blocks(plan(in), Action::Spill).size(), 10u);
}

TEST_F(PolicyTest, OrdersThatAreOutAreNotGivenAgain)
{
	start();
	make_slot(0);
	now_ms += 1000;
	auto first = plan(hot_of(64, 100, 60, 40));
	EXPECT_EQ(blocks(first, Action::Spill).size(), 24u);
	EXPECT_TRUE(plan(hot_of(64, 100, 60, 40)).empty());
	obey(first);
	EXPECT_TRUE(plan(hot_of(40, 100, 60, 40)).empty());
}

TEST_F(PolicyTest, RefusedBlocksAreLeftAloneForAWhileAndOthersGoInstead)
{
	start();
	make_slot(0);
	now_ms += 1000;
	PlanInput in = hot_of(64, 100, 60, 40);
	auto first = blocks(plan(in), Action::Spill);
	for (uint32_t b : first)
		moved(b, 1, Where::Hot); /* leased */
	auto second = blocks(plan(in), Action::Spill);
	EXPECT_EQ(second.size(), 24u);
	for (uint32_t b : second)
		EXPECT_EQ(first.count(b), 0u);
	for (uint32_t b : second)
		moved(b, 1, Where::Hot);

	/* Everything refuses, 100 plans a second: the number of orders stays small. */
	size_t orders = 0;
	for (int i = 0; i < 1000; i++, now_ms += 10)
		for (uint32_t b : blocks(plan(in), Action::Spill)) {
			orders++;
			moved(b, 1, Where::Hot);
		}
	EXPECT_LE(orders, 64u * 4);
	EXPECT_GT(orders, 0u); /* but it does try again */
}

TEST_F(PolicyTest, LostAnswersDoNotBlockRoomForEver)
{
	start();
	make_slot(0);
	now_ms += 1000;
	EXPECT_EQ(blocks(plan(hot_of(64, 64, 60, 40)), Action::Spill).size(), 24u);
	EXPECT_TRUE(plan(hot_of(64, 64, 60, 40)).empty());
	now_ms += 60'000;
	EXPECT_EQ(blocks(plan(hot_of(64, 64, 60, 40)), Action::Spill).size(), 24u);
}

TEST_F(PolicyTest, AnchorsAndPinsLeaveLast)
{
	PolicyOptions options = plain();
	options.anchor_blocks = 1;
	start(options);
	make_slot(0);
	pin(0, 3, 4, 2, 80);
	now_ms += 1000;
	for (uint32_t step = 1; step <= 50; step++)
		hint(CXL_KV_HINT_POSITION, 0, 256 + step);
	std::set<uint32_t> kept = {0, 16, 32, 48, 52, 53};
	PlanInput in = hot_of(64, 64, 10, 0);
	auto soft = blocks(plan(in), Action::Spill);
	EXPECT_EQ(soft.size(), 58u);
	for (uint32_t b : kept)
		EXPECT_EQ(soft.count(b), 0u) << b;
	for (uint32_t b : soft)
		moved(b, 1, Where::Cold);
	in = hot_of(6, 64, 10, 0);
	in.wanted_hot_bytes = 62 * block_bytes;
	EXPECT_EQ(blocks(plan(in), Action::Spill), (std::set<uint32_t>{0, 16, 32, 48}))
		<< "anchors before pins";
}

TEST_F(PolicyTest, TheBlockBeingWrittenStays)
{
	start();
	make_slot(0);
	now_ms += 1000;
	for (uint32_t step = 0; step < 50; step++)
		hint(CXL_KV_HINT_POSITION, 0, step);
	PlanInput in = hot_of(64, 64, 10, 0);
	in.wanted_hot_bytes = 60 * block_bytes;
	auto spilled = blocks(plan(in), Action::Spill);
	EXPECT_EQ(spilled.size(), 60u);
	for (uint32_t head = 0; head < 4; head++)
		EXPECT_EQ(spilled.count(head * 16 + 3), 0u);
}

TEST_F(PolicyTest, OfTooManyTimedPinsTheOneThatEndsFirstProtectsNoLonger)
{
	for (uint32_t others : {4095, 4096}) {
		start(plain(), small_geometry(65));
		make_slot(0);
		pin(0, 0, 0, 1, 90, 60'000);
		for (uint32_t i = 0; i < others; i++)
			pin(1 + i / 64, i / 16 % 4, i % 16, 1, 90, 90'000);
		now_ms += 1000;
		auto spilled = blocks(plan(hot_of(64, 64, 10, 0)), Action::Spill);
		EXPECT_EQ(spilled.count(0), others - 4095) << others;
		EXPECT_TRUE(spilled.count(1));
	}
}

TEST_F(PolicyTest, PinsEndWithTheirLifetimeAndLowOnesLeaveFirst)
{
	start();
	make_slot(0);
	pin(0, 0, 0, 16, 90, 5000);
	pin(0, 1, 0, 4, 10);
	now_ms += 1000;
	hint(CXL_KV_HINT_POSITION, 0, 256);
	auto low = blocks(plan(hot_of(64, 64, 62, 60)), Action::Spill);
	EXPECT_EQ(low, (std::set<uint32_t>{16, 17, 18, 19}));
	for (uint32_t b : low)
		moved(b, 1, Where::Cold);
	auto soft = blocks(plan(hot_of(60, 64, 10, 0)), Action::Spill);
	EXPECT_EQ(soft.size(), 44u);
	for (uint32_t b : soft)
		moved(b, 1, Where::Cold);
	now_ms += 5000;
	EXPECT_EQ(blocks(plan(hot_of(16, 64, 10, 0)), Action::Spill).size(), 16u);
}

TEST_F(PolicyTest, YoungBlocksStayUnlessRoomIsNeededNow)
{
	start();
	make_slot(0);
	EXPECT_TRUE(plan(hot_of(64, 100, 60, 40)).empty());
	PlanInput in = hot_of(64, 100, 60, 40);
	in.wanted_hot_bytes = 46 * block_bytes;
	EXPECT_EQ(blocks(plan(in), Action::Spill).size(), 10u);
	now_ms += 300;
	EXPECT_EQ(blocks(plan(hot_of(64, 100, 50, 40)), Action::Spill).size(), 14u);
}

TEST_F(PolicyTest, APrefillLosesNothingToAWatermark)
{
	start();
	make_slot(0);
	now_ms += 1000;
	hint(CXL_KV_HINT_PHASE, 0, CXL_KV_PHASE_PREFILL);
	EXPECT_TRUE(plan(hot_of(64, 100, 60, 40)).empty());
	auto orders = plan(hot_of(64, 60, 50, 40));
	EXPECT_EQ(blocks(orders, Action::Spill).size(), 4u) << "but to what does not fit at all";
	obey(orders);
	now_ms += 1000;
	hint(CXL_KV_HINT_PHASE, 0, CXL_KV_PHASE_DECODE);
	EXPECT_EQ(blocks(plan(hot_of(60, 100, 50, 40)), Action::Spill).size(), 20u);
}

TEST_F(PolicyTest, AScoreSparesFromAWatermarkUntilItIsKnownWhatItIsWorth)
{
	start();
	make_slot(0);
	/* Blocks 0 to 7 of each head scored much until five steps ago, the others never. */
	auto run = [&](uint32_t steps, uint32_t first, double mass) {
		for (uint32_t step = 0; step < steps; step++) {
			now_ms += 1000;
			hint(CXL_KV_HINT_POSITION, 0, 1);
			for (uint32_t head = 0; head < 4; head++)
				score(0, head, first, 8, mass);
			plan(hot_of(64, 100, 90, 80));
		}
	};
	run(20, 0, 1.0);
	run(5, 8, 0.005);
	ASSERT_GT(policy->score(1, 1), PolicyOptions().demote_score);
	ASSERT_LT(policy->score(1, 9), PolicyOptions().demote_score);
	for (uint32_t b : blocks(plan(hot_of(64, 100, 20, 20)), Action::Spill))
		EXPECT_GE(b % 16, 8u);
	now_ms += 10'000; /* nobody answers that order */
	/* Used in each step by now, if with little mass; and what is not comes back no more. */
	run(100, 8, 0.05);
	const auto soft = blocks(plan(hot_of(64, 100, 60, 60)), Action::Spill);
	EXPECT_EQ(soft.size(), 4u);
	for (uint32_t b : soft)
		EXPECT_LT(b % 16, 8u);
}

TEST_F(PolicyTest, WhereRoomIsNeededAScoreSparesNobody)
{
	start();
	make_slot(0);
	for (uint32_t step = 1; step <= 40; step++) {
		now_ms += 1000;
		hint(CXL_KV_HINT_POSITION, 0, 1);
		for (uint32_t head = 0; head < 4; head++)
			score(0, head, step <= 35 ? 0 : 8, 8, step <= 35 ? 1.0 : 0.02);
	}
	const auto needed = blocks(plan(hot_of(60, 56, 56, 56)), Action::Spill);
	EXPECT_EQ(needed.size(), 4u);
	for (uint32_t b : needed)
		EXPECT_LT(b % 16, 8u) << "five steps without a use";
}

/* A prompt that was read once, of a session that writes another one, beside a session that decodes.
 */
TEST_F(PolicyTest, WhereRoomIsNeededAPrefillSparesNobody)
{
	start();
	make_slot(1);
	make_slot(0);
	hint(CXL_KV_HINT_PHASE, 1, CXL_KV_PHASE_PREFILL);
	for (uint32_t step = 1; step <= 40; step++) {
		now_ms += 100;
		hint(CXL_KV_HINT_POSITION, 0, 1);
		touch(0, 0, 16);
		EXPECT_TRUE(plan(hot_of(128, 128, 128, 128)).empty()) << step;
	}
	const auto needed = blocks(plan(hot_of(128, 112, 112, 112)), Action::Spill);
	EXPECT_EQ(needed.size(), 16u);
	for (uint32_t b : needed)
		EXPECT_GE(b, 64u) << "of slot 0";
}

/* Ages of both are compared: steps of 33 ms of an engine that tells, and passes of a second. */
TEST_F(PolicyTest, WhoIsOnlySampledStaysForNoLongerThanWhoTellsThatItUsesMore)
{
	start();
	policy->add_arena(2, geometry);
	policy->open_session(1, 0, now_ms);
	policy->open_session(2, 0, now_ms);
	make_slot(0);
	policy->moved({2, 0, 64}, Where::Hot, now_ms);
	auto pass = [&] {
		policy->sample(2, 0, ~0ull, 0, now_ms);
		policy->interval(2);
	};
	for (uint32_t step = 0; step < 120 * 30; step++) {
		if (step % 30 == 0)
			pass();
		now_ms += 33;
		hint(CXL_KV_HINT_POSITION, 0, 1 + step % 200);
		if (step % 8 < 4) /* a head, each 8th step */
			score(0, step % 8, 0, 16, 0.1);
		if (step % 30 == 29) {
			EXPECT_TRUE(plan(hot_of(128, 200, 190, 190)).empty());
		}
	}
	pass();
	const auto orders = plan(hot_of(128, 112, 112, 112));
	EXPECT_EQ(blocks(orders, Action::Spill).size(), 24u) << "and the next blocks of both";
	for (const Order &order : orders)
		EXPECT_EQ(order.extent.arena, 2u);
}

TEST_F(PolicyTest, BlocksBehindTheWindowAreDroppedNotSpilled)
{
	Geometry g = small_geometry();
	g.layer_window = {64, 0};
	start(plain(), g);
	make_slot(0);
	hint(CXL_KV_HINT_POSITION, 0, 78);
	EXPECT_TRUE(plan(hot_of(64, 100, 90, 80)).empty()) << "token 15 is still seen at 78";
	hint(CXL_KV_HINT_POSITION, 0, 79);
	auto dropped = blocks(plan(hot_of(64, 100, 90, 80)), Action::Drop);
	EXPECT_EQ(dropped, (std::set<uint32_t>{0, 16}));
	for (uint32_t b : dropped)
		moved(b, 1, Where::Hot); /* leased: refused */
	EXPECT_TRUE(plan(hot_of(64, 100, 90, 80)).empty());
	now_ms += 1000;
	dropped = blocks(plan(hot_of(64, 100, 90, 80)), Action::Drop);
	EXPECT_EQ(dropped, (std::set<uint32_t>{0, 16})) << "tried again";
}

TEST_F(PolicyTest, ANewConversationInASlotIsNotDroppedByTheOldPosition)
{
	Geometry g = small_geometry();
	g.layer_window = {64, 64};
	start(plain(), g);
	make_slot(0);
	hint(CXL_KV_HINT_POSITION, 0, 200);
	moved(0, 64, Where::Empty);
	hint(CXL_KV_HINT_POSITION, 0, 210); /* late */
	make_slot(0);
	EXPECT_TRUE(plan(hot_of(64, 100, 90, 80)).empty());
}

TEST_F(PolicyTest, ExtentsAreNoLongerThanAllowedAndStayInASession)
{
	PolicyOptions options = plain();
	options.max_extent_bytes = 24 * block_bytes;
	start(options);
	make_slot(0);
	make_slot(1);
	now_ms += 1000;
	auto orders = plan(hot_of(128, 128, 10, 0));
	EXPECT_EQ(blocks(orders, Action::Spill).size(), 128u);
	for (const Order &order : orders) {
		EXPECT_LE(order.extent.nr, 24u);
		EXPECT_EQ(order.extent.first / 64, (order.extent.first + order.extent.nr - 1) / 64);
	}
}
