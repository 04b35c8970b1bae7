/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Between the tiers: demotion, promotion, prefetch, drains, budgets of bytes. */
#include "core/arena_state.h"
#include "lib/policy_fixture.h"

using namespace cxlkv;

TEST_F(PolicyTest, WithWarmHotDemotesAndWarmSpills)
{
	start();
	make_slot(0);
	make_slot(1);
	moved(64, 64, Where::Warm);
	now_ms += 1000;
	PlanInput in = hot_of(64, 100, 60, 40);
	in.warm = {64 * block_bytes, 80 * block_bytes, 60 * block_bytes, 50 * block_bytes};
	auto orders = plan(in);
	auto spilled = blocks(orders, Action::Spill), demoted = blocks(orders, Action::Demote);
	for (uint32_t b : demoted)
		EXPECT_LT(b, 64u);
	EXPECT_EQ(demoted.size(), 16u) << "as many as warm holds";
	EXPECT_EQ(spilled.size(), 14u + 8u)
		<< "warm down to its low watermark, and the rest of hot";
	EXPECT_EQ(orders[0].action, Action::Spill) << "room first";
}

TEST_F(PolicyTest, WhoMayNotHaveMemoryInWarmSpills)
{
	start();
	make_slot(0);
	now_ms += 1000;
	PlanInput in = hot_of(64, 64, 60, 40);
	in.warm = {0, 80 * block_bytes, 60 * block_bytes, 50 * block_bytes};
	policy->set_warm_allowed(1, false);
	auto orders = plan(in);
	EXPECT_TRUE(blocks(orders, Action::Demote).empty());
	EXPECT_EQ(blocks(orders, Action::Spill).size(), 24u);
}

TEST_F(PolicyTest, ADrainedWarmTierEmptiesIntoTheRoomOfHotAndTheRestIntoCold)
{
	start();
	make_slot(0);
	make_slot(1);
	moved(0, 64, Where::Warm);
	now_ms += 1000;
	PlanInput in = hot_of(64, 100, 80, 60);
	in.warm = {64 * block_bytes, 100 * block_bytes, 90 * block_bytes, 80 * block_bytes};
	EXPECT_TRUE(plan(in).empty());
	in.drain_warm = true;
	auto orders = plan(in);
	EXPECT_EQ(blocks(orders, Action::Promote).size(), 16u) << "up to hot's high watermark";
	EXPECT_EQ(blocks(orders, Action::Spill).size(), 48u);
	/* What hot has to give goes to cold too. */
	moved(0, 16, Where::Hot);
	moved(16, 48, Where::Cold);
	now_ms += 1000;
	PlanInput full = hot_of(90, 100, 80, 60);
	full.warm = {0, 100 * block_bytes, 90 * block_bytes, 80 * block_bytes};
	full.drain_warm = true;
	orders = plan(full);
	EXPECT_TRUE(blocks(orders, Action::Demote).empty());
	EXPECT_EQ(blocks(orders, Action::Spill).size(), 30u);
}

TEST_F(PolicyTest, ADrainedColdTierComesBackAsFarAsThereIsRoomAndNothingFollows)
{
	start();
	make_slot(0);
	make_slot(1);
	moved(64, 64, Where::Cold);
	now_ms += 1000;
	PlanInput in = hot_of(64, 100, 90, 80);
	in.drain_cold = true;
	EXPECT_EQ(blocks(plan(in), Action::Prefetch).size(), 36u) << "no more than hot holds";
	now_ms += 60'000;
	in = hot_of(95, 100, 90, 80);
	in.drain_cold = true;
	EXPECT_TRUE(blocks(plan(in), Action::Spill).empty())
		<< "although hot is over its watermark";
	in.drain_cold = false;
	EXPECT_FALSE(blocks(plan(in), Action::Spill).empty());
}

TEST_F(PolicyTest, BudgetsLimitAPlan)
{
	start();
	make_slot(0);
	now_ms += 1000;
	PlanInput in = hot_of(64, 100, 60, 0);
	in.spill_budget_bytes = 5 * block_bytes;
	EXPECT_EQ(blocks(plan(in), Action::Spill).size(), 5u);
	in.cold_available = false;
	in.spill_budget_bytes = 1 << 30;
	EXPECT_TRUE(plan(in).empty());
}

class SlowHotTest : public PolicyTest {
protected:
	PlanInput all_in_warm()
	{
		start();
		make_slot(0);
		moved(0, 64, Where::Warm);
		now_ms += 1000;
		PlanInput in = hot_of(0, 100, 80, 60);
		in.warm = {64 * block_bytes, 100 * block_bytes, 90 * block_bytes, 80 * block_bytes};
		in.may_promote = false;
		return in;
	}
};

TEST_F(SlowHotTest, NothingIsPromoted)
{
	PlanInput in = all_in_warm();
	touch(0, 3);
	EXPECT_TRUE(blocks(plan(in), Action::Promote).empty());
	hint(CXL_KV_HINT_WAKE, 0);
	EXPECT_TRUE(blocks(plan(in), Action::Promote).empty()) << "nor for a wake";
	in.may_promote = true;
	touch(0, 5);
	EXPECT_FALSE(blocks(plan(in), Action::Promote).empty());
}

TEST_F(SlowHotTest, ADrainOfWarmGoesOn)
{
	PlanInput in = all_in_warm();
	in.drain_warm = true;
	EXPECT_EQ(blocks(plan(in), Action::Promote).size(), 64u);
}

TEST_F(PolicyTest, WarmBlocksThatScoreArePromotedWhereThereIsRoom)
{
	start();
	make_slot(0);
	moved(0, 64, Where::Warm);
	now_ms += 1000;
	for (uint32_t step = 1; step <= 10; step++) {
		hint(CXL_KV_HINT_POSITION, 0, step);
		score(0, 0, 0, 4, 0.5);
		score(0, 0, 4, 4, 0.15); /* below promote_score */
	}
	PlanInput in = hot_of(0, 100, 3, 2);
	in.warm = {64 * block_bytes, 100 * block_bytes, 90 * block_bytes, 80 * block_bytes};
	EXPECT_EQ(blocks(plan(in), Action::Promote).size(), 3u);
	score(0, 0, 0, 4, 0.5);
	in.hot.high_bytes = 90 * block_bytes;
	EXPECT_EQ(blocks(plan(in), Action::Promote).size(), 1u) << "three are on their way";
}

TEST_F(PolicyTest, ADemandFetchBringsItsNeighboursAndTheNextLayer)
{
	PolicyOptions options = plain();
	options.prefetch_window_tokens = 32;
	options.prefetch_layers = 1;
	start(options);
	make_slot(0);
	moved(0, 64, Where::Cold);
	moved(8, 1, Where::Hot); /* unasked */
	auto orders = plan(hot_of(1, 100, 90, 80));
	EXPECT_EQ(blocks(orders, Action::Prefetch), (std::set<uint32_t>{6, 7, 9, 10, 40, 56}));
	EXPECT_GE(orders[0].extent.first, 40u) << "distance 0 first";
	for (const Order &order : orders)
		moved(order.extent.first, order.extent.nr, Where::Cold); /* refused */
	EXPECT_TRUE(plan(hot_of(1, 100, 90, 80)).empty());
}

TEST_F(PolicyTest, TheNearestAreFetchedFirstAndNothingLeavesForThem)
{
	PolicyOptions options = plain();
	options.prefetch_window_tokens = 64;
	start(options);
	make_slot(0);
	moved(0, 64, Where::Cold);
	moved(8, 1, Where::Hot);
	auto near = blocks(plan(hot_of(1, 100, 4, 3)), Action::Prefetch);
	EXPECT_EQ(near.size(), 3u) << "as far as there is room";
	EXPECT_TRUE(near.count(7) && near.count(9));
	EXPECT_TRUE(near.count(6) || near.count(10));
	now_ms += 60'000;
	moved(8, 1, Where::Cold);
	moved(8, 1, Where::Hot);
	EXPECT_TRUE(plan(hot_of(50, 100, 50, 40)).empty());
}

TEST_F(PolicyTest, TheLookAheadGoesAsManyLayersAsItIsTold)
{
	PolicyOptions options = plain();
	Geometry g = small_geometry();
	options.prefetch_layers = 2;
	g.nr_layers = 4;
	g.layer_window.assign(4, 0);
	start(options, g);
	moved(0, 128, Where::Hot);
	moved(0, 128, Where::Cold);
	moved(5, 1, Where::Hot); /* layer 0 */
	EXPECT_EQ(blocks(plan(hot_of(1, 100, 90, 80)), Action::Prefetch),
		  (std::set<uint32_t>{37, 53, 69, 85}))
		<< "both heads of layers 1 and 2, not of 3";
	now_ms += 60'000;
	moved(101, 1, Where::Hot);
	EXPECT_TRUE(plan(hot_of(6, 100, 90, 80)).empty()) << "nothing follows the last layer";
}

TEST_F(PolicyTest, TheQueueOfWishesHasAnEnd)
{
	Geometry g = small_geometry(1);
	PolicyOptions options;
	StepClock clock;
	SessionCounters counters;
	g.tokens_per_slot = 16 * 1024;
	options.prefetch_window_tokens = 16 * 512;
	ArenaState arena(1, g, options, clock, counters);
	arena.moved(0, g.nr_blocks(), Where::Cold, now_ms);
	for (uint32_t b = 0; b < 1024; b++) {
		arena.moved(b, 1, Where::Hot, now_ms); /* a client that reads all there is */
		arena.moved(b, 1, Where::Cold, now_ms);
	}
	EXPECT_EQ(arena.to_prefetch.size(), ArenaState::max_wishes);
}
