/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The policy as the daemon uses it: what it is told, and what it orders. */
#include "core/policy.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

using namespace cxlkv;

namespace {

constexpr uint32_t block_bytes = 4096;

/* Two layers of two heads, 16 blocks a head, 16 tokens a block: 64 blocks a slot. */
Geometry small_geometry(uint32_t slots = 4)
{
	Geometry g;
	g.nr_slots = slots;
	g.nr_layers = 2;
	g.nr_kv_heads = 2;
	g.head_dim = 8;
	g.elem_bytes = 2;
	g.tokens_per_block = 16;
	g.tokens_per_slot = 256;
	g.block_bytes = block_bytes;
	g.layer_window.assign(2, 0);
	return g;
}

class PolicyTest : public testing::Test {
protected:
	void start(const PolicyOptions &options = plain(), const Geometry &g = small_geometry())
	{
		ASSERT_EQ(check_options(options), "");
		ASSERT_EQ(check_geometry(g), "");
		geometry = g;
		policy = std::make_unique<Policy>(options);
		policy->add_arena(1, g);
	}

	/* No anchors and no guesses, so that each test sees one rule. */
	static PolicyOptions plain()
	{
		PolicyOptions options;
		options.anchor_blocks = 0;
		options.prefetch_window_tokens = 0;
		options.prefetch_layers = 0;
		return options;
	}

	void moved(uint32_t first, uint32_t nr, Where where)
	{
		policy->moved({1, first, nr}, where, now_ms);
	}
	void make_slot(uint32_t slot) { moved(slot * 64, 64, Where::Hot); }

	void hint(uint8_t kind, uint32_t slot, uint32_t position = 0)
	{
		cxl_kv_hint h = {};
		h.kind = kind;
		h.slot = slot;
		h.position = position;
		policy->hint(1, h, now_ms);
	}

	void score(uint32_t slot, uint32_t head, uint32_t block, uint32_t nr, double mass)
	{
		cxl_kv_hint h = {};
		h.kind = CXL_KV_HINT_SCORE;
		h.slot = slot;
		h.head = head;
		h.block = block;
		h.nr_blocks = nr;
		h.score = static_cast<uint16_t>(mass * CXL_KV_SCORE_ONE);
		policy->hint(1, h, now_ms);
	}

	void pin(uint32_t slot, uint32_t head, uint32_t block, uint32_t nr, uint8_t priority,
		 uint32_t lifetime_ms = 0)
	{
		cxl_kv_hint h = {};
		h.kind = CXL_KV_HINT_PIN;
		h.slot = slot;
		h.head = head;
		h.block = block;
		h.nr_blocks = nr;
		h.priority = priority;
		h.lifetime_ms = lifetime_ms;
		policy->hint(1, h, now_ms);
	}

	/* All four heads touch block b of the slot in this step. */
	void touch(uint32_t slot, uint32_t block, uint32_t nr = 1)
	{
		for (uint32_t head = 0; head < 4; head++)
			score(slot, head, block, nr, 0.5);
	}

	/* A plan with room for limit blocks in hot, high and low at the given counts. */
	static PlanInput hot_of(uint32_t used, uint32_t limit, uint32_t high, uint32_t low)
	{
		PlanInput in;
		in.hot = {uint64_t{used} * block_bytes, uint64_t{limit} * block_bytes,
			  uint64_t{high} * block_bytes, uint64_t{low} * block_bytes};
		in.move_budget_bytes = in.spill_budget_bytes = 1 << 30;
		return in;
	}

	std::vector<Order> plan(PlanInput in)
	{
		in.now_ms = now_ms;
		return policy->plan(in);
	}

	static std::set<uint32_t> blocks(const std::vector<Order> &orders, Action action)
	{
		std::set<uint32_t> all;
		for (const Order &order : orders)
			for (uint32_t i = 0; order.action == action && i < order.extent.nr; i++)
				EXPECT_TRUE(all.insert(order.extent.first + i).second)
					<< "ordered twice";
		return all;
	}

	/* The daemon does all it was told. */
	void obey(const std::vector<Order> &orders)
	{
		for (const Order &order : orders) {
			Where to = order.action == Action::Demote  ? Where::Warm
				   : order.action == Action::Spill ? Where::Cold
				   : order.action == Action::Drop  ? Where::Empty
								   : Where::Hot;
			policy->moved(order.extent, to, now_ms);
		}
	}

	Geometry geometry;
	std::unique_ptr<Policy> policy;
	uint64_t now_ms = 10'000;
};

} // namespace

TEST_F(PolicyTest, OptionsOutOfRangeAreNamed)
{
	auto wrong = [](auto change) {
		PolicyOptions options;
		change(options);
		return check_options(options);
	};
	EXPECT_EQ(check_options({}), "");
	EXPECT_NE(wrong([](auto &o) { o.preset = "best"; }).find("adaptive, paper"),
		  std::string::npos);
	EXPECT_NE(wrong([](auto &o) { o.alpha = 0; }).find("alpha"), std::string::npos);
	EXPECT_NE(wrong([](auto &o) { o.alpha = NAN; }).find("alpha"), std::string::npos);
	EXPECT_NE(wrong([](auto &o) { o.decay_steps = -1; }).find("decay_steps"),
		  std::string::npos);
	EXPECT_NE(wrong([](auto &o) { o.demote_score = 0.3; }).find("to and fro"),
		  std::string::npos);
	EXPECT_NE(wrong([](auto &o) { o.max_extent_bytes = 100; }).find("max_extent_bytes"),
		  std::string::npos);
	EXPECT_NE(wrong([](auto &o) { o.min_residency_ms = 20'000; }).find("min_residency_ms"),
		  std::string::npos);
}

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

TEST_F(PolicyTest, ParkedSessionsLeaveFirstLongestParkedFirst)
{
	start();
	for (uint32_t slot = 0; slot < 3; slot++)
		make_slot(slot);
	now_ms += 1000;
	hint(CXL_KV_HINT_PARK, 2);
	now_ms += 1;
	hint(CXL_KV_HINT_PARK, 1);
	for (uint32_t step = 1; step < 10; step++)
		hint(CXL_KV_HINT_POSITION, 0, step); /* slot 0 is not touched at all, but active */
	auto spilled = blocks(plan(hot_of(192, 300, 190, 100)), Action::Spill);
	ASSERT_EQ(spilled.size(), 92u);
	size_t of[3] = {};
	for (uint32_t b : spilled)
		of[b / 64]++;
	EXPECT_EQ(of[2], 64u);
	EXPECT_EQ(of[1], 28u);
	EXPECT_EQ(of[0], 0u);
}

TEST_F(PolicyTest, ActiveSessionsKeepTheirBlocksWhileIdleOnesHaveAny)
{
	start();
	for (uint32_t slot = 0; slot < 3; slot++)
		make_slot(slot);
	hint(CXL_KV_HINT_PARK, 1);
	/* Its blocks came a moment ago and may not leave yet; who is active need not pay for it. */
	EXPECT_TRUE(plan(hot_of(192, 300, 190, 180)).empty());
	now_ms += 1000;
	for (uint32_t b : blocks(plan(hot_of(192, 300, 190, 180)), Action::Spill))
		EXPECT_EQ(b / 64, 1u);
	EXPECT_EQ(policy->session_stats().nr_active_evicted_blocks, 0u);
}

TEST_F(PolicyTest, SilentSessionsLeaveThoughThereIsRoom)
{
	PolicyOptions options = plain();
	uint32_t position = 1;
	options.session.idle_ms = 2000;
	options.session.warm_ms = 0;
	options.session.cold_ms = 4000;
	options.session.drop_ms = 8000;
	start(options);
	make_slot(0);
	make_slot(1);
	auto run = [&] {
		hint(CXL_KV_HINT_POSITION, 0, position++);
		return plan(hot_of(128, 1000, 900, 800));
	};
	for (uint64_t end = now_ms + 3900; now_ms < end; now_ms += 100)
		ASSERT_TRUE(run().empty());
	EXPECT_EQ(policy->session_stats().nr_by_state[2], 1u) << "idle";
	now_ms += 200;
	std::vector<Order> orders;
	for (int i = 0; i < 10 && orders.empty(); i++, now_ms += 100)
		orders = run();
	auto spilled = blocks(orders, Action::Spill);
	EXPECT_EQ(spilled.size(), 64u);
	for (uint32_t b : spilled)
		EXPECT_EQ(b / 64, 1u);
	moved(64, 64, Where::Cold);
	now_ms += 4000;
	orders.clear();
	for (int i = 0; i < 10 && orders.empty(); i++, now_ms += 100)
		orders = run();
	EXPECT_EQ(blocks(orders, Action::Forget).size(), 64u);
	EXPECT_EQ(policy->session_stats().nr_dropped, 1u);
	moved(64, 64, Where::Lost);
	EXPECT_TRUE(run().empty()) << "given up once";
	make_slot(1);
	EXPECT_EQ(policy->session_stats().nr_by_state[1], 2u) << "made anew it is active again";
}

TEST_F(PolicyTest, TenantOverItsQuotaPaysItself)
{
	start();
	policy->add_arena(2, geometry);
	policy->set_tenant(2, 1);
	for (uint32_t slot = 0; slot < 2; slot++) {
		make_slot(slot);
		policy->moved({2, slot * 64, 64}, Where::Hot, now_ms);
	}
	hint(CXL_KV_HINT_PARK, 0); /* of tenant 0, idle for longer */
	now_ms += 1000;
	cxl_kv_hint park{};
	park.kind = CXL_KV_HINT_PARK;
	park.slot = 1;
	policy->hint(2, park, now_ms);
	PlanInput input = hot_of(256, 1000, 900, 800);
	input.tenants.resize(2);
	for (TenantRoom &room : input.tenants) {
		room.hot = {128 * block_bytes, no_quota, no_quota, no_quota};
		room.warm.limit_bytes = no_quota;
	}
	input.tenants[1].hot = {128 * block_bytes, 100 * block_bytes, 95 * block_bytes,
				90 * block_bytes};
	auto orders = plan(input);
	EXPECT_EQ(blocks(orders, Action::Spill).size(), 38u);
	for (const Order &order : orders) {
		EXPECT_EQ(order.extent.arena, 2u);
		EXPECT_EQ(order.extent.first / 64, 1u) << "his idle session";
	}
}

TEST_F(PolicyTest, FullColdQuotaGivesUpTheLongestIdleSession)
{
	start();
	for (uint32_t slot = 0; slot < 3; slot++)
		make_slot(slot);
	hint(CXL_KV_HINT_PARK, 1);
	now_ms += 1;
	hint(CXL_KV_HINT_PARK, 2);
	moved(64, 64, Where::Cold);
	now_ms += 1000;
	PlanInput input = hot_of(128, 1000, 900, 800);
	input.tenants.resize(1);
	input.tenants[0].hot = {128 * block_bytes, 100 * block_bytes, 95 * block_bytes,
				90 * block_bytes};
	input.tenants[0].warm.limit_bytes = no_quota;
	input.tenants[0].cold_limit_bytes = 70 * block_bytes;
	input.tenants[0].cold_used_bytes = 64 * block_bytes;
	auto orders = plan(input);
	EXPECT_EQ(blocks(orders, Action::Spill).size(), 6u) << "as far as the quota goes";
	auto forgotten = blocks(orders, Action::Forget);
	ASSERT_EQ(forgotten.size(), 64u);
	for (uint32_t b : forgotten)
		EXPECT_EQ(b / 64, 1u);
	EXPECT_EQ(policy->session_stats().nr_dropped, 1u);
}

TEST_F(PolicyTest, WakeOrdersAllColdBlocksBackInLongExtentsAndKeepsThem)
{
	start();
	make_slot(0);
	make_slot(1);
	now_ms += 1000;
	hint(CXL_KV_HINT_PARK, 1);
	obey(plan(hot_of(128, 200, 64, 64)));
	now_ms += 1000;
	hint(CXL_KV_HINT_WAKE, 1);
	auto orders = plan(hot_of(64, 200, 190, 180));
	EXPECT_EQ(blocks(orders, Action::Prefetch).size(), 64u);
	EXPECT_EQ(orders.size(), 1u); /* 64 adjacent blocks of 4 KiB are one extent */
	EXPECT_TRUE(plan(hot_of(64, 200, 190, 180)).empty()) << "ordered once";
	obey(orders);
	now_ms += 1000;
	hint(CXL_KV_HINT_POSITION, 0, 1);
	auto spilled = blocks(plan(hot_of(128, 200, 100, 90)), Action::Spill);
	EXPECT_EQ(spilled.size(), 38u);
	for (uint32_t b : spilled)
		EXPECT_LT(b, 64u);
}

TEST_F(PolicyTest, WakeMakesItsOwnRoomFirst)
{
	start();
	make_slot(0);
	make_slot(1);
	now_ms += 1000;
	hint(CXL_KV_HINT_PARK, 0);
	obey(plan(hot_of(128, 70, 68, 64)));
	now_ms += 1000;
	hint(CXL_KV_HINT_PARK, 1);
	hint(CXL_KV_HINT_WAKE, 0);
	auto orders = plan(hot_of(64, 70, 68, 64));
	ASSERT_FALSE(orders.empty());
	EXPECT_EQ(orders[0].action, Action::Spill);
	EXPECT_EQ(blocks(orders, Action::Prefetch).size(), 6u) << "no more than fits now";
	obey(orders);
	uint32_t used = 64 + 6 - static_cast<uint32_t>(blocks(orders, Action::Spill).size());
	for (int i = 0; i < 5; i++) {
		orders = plan(hot_of(used, 70, 68, 64));
		used += static_cast<uint32_t>(blocks(orders, Action::Prefetch).size());
		used -= static_cast<uint32_t>(blocks(orders, Action::Spill).size());
		EXPECT_LE(used, 70u);
		obey(orders);
	}
	EXPECT_EQ(policy->heads(1)[0].nr_cold, 16u) << "slot 1 is out";
	EXPECT_EQ(policy->heads(1)[0].nr_hot, 16u) << "slot 0 is in";
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

TEST_F(PolicyTest, SamplesAloneFindTheHotBlocks)
{
	start();
	make_slot(0);
	for (int i = 0; i < 10; i++) {
		now_ms += 100;
		policy->sample(1, 0, 0xf0, 0, now_ms); /* blocks 4..7 */
	}
	EXPECT_GT(policy->score(1, 5), 0.8);
	EXPECT_EQ(policy->score(1, 20), 0);
	auto spilled = blocks(plan(hot_of(64, 64, 10, 4)), Action::Spill);
	EXPECT_EQ(spilled.size(), 60u);
	for (uint32_t b = 4; b < 8; b++)
		EXPECT_EQ(spilled.count(b), 0u);
	EXPECT_EQ(policy->heads(1)[0].nr_reads, 40u);
}

TEST_F(PolicyTest, PhaseFromSamplesAndFromTheEngine)
{
	start();
	make_slot(0);
	policy->sample(1, 0, 0x3ff, 0x200, now_ms); /* 9 reads, 1 write */
	EXPECT_EQ(policy->phase(1, 0), Phase::Prefill);
	now_ms += 100;
	policy->sample(1, 0, 0x3fffff, 0x200, now_ms);
	EXPECT_EQ(policy->phase(1, 0), Phase::Decode);
	hint(CXL_KV_HINT_PHASE, 0, 0);
	EXPECT_EQ(policy->phase(1, 0), Phase::Prefill);
	EXPECT_EQ(policy->phase(1, 1), Phase::Unknown);
}

TEST_F(PolicyTest, HeadSumsFollowTheirBlocks)
{
	start();
	make_slot(0);
	for (uint32_t step = 1; step <= 20; step++) {
		hint(CXL_KV_HINT_POSITION, 0, step);
		score(0, 2, 0, 8, 0.1 * (step % 7));
		score(0, 2, 3, 2, 0.9);
	}
	double sum = 0;
	for (uint32_t b = 32; b < 48; b++)
		sum += policy->score(1, b);
	EXPECT_NEAR(policy->heads(1)[2].ema_sum, sum, 1e-3);
	moved(35, 1, Where::Cold);
	EXPECT_NEAR(policy->heads(1)[2].ema_sum, sum - policy->score(1, 35), 1e-3);
	EXPECT_EQ(policy->heads(1)[2].nr_hot, 15u);
	EXPECT_EQ(policy->heads(1)[2].nr_cold, 1u);
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

TEST_F(PolicyTest, HintsOutOfRangeAreHarmless)
{
	start();
	make_slot(0);
	score(9, 0, 0, 1, 1);
	score(0, 4, 0, 1, 1);
	score(0, 0, 16, 1, 1);
	score(0, 0, 15, UINT32_MAX, 1);
	pin(0, 3, 15, 2, 255);
	hint(CXL_KV_HINT_PARK, UINT32_MAX);
	hint(200, 0);
	policy->sample(1, 250, ~0ull, ~0ull, now_ms);
	policy->sample(1, UINT32_MAX, ~0ull, ~0ull, now_ms);
	policy->moved({1, 250, UINT32_MAX}, Where::Hot, now_ms);
	policy->moved({7, 0, 1}, Where::Hot, now_ms);
	EXPECT_EQ(policy->heads(1)[0].nr_hints, 0u);
	EXPECT_EQ(policy->score(1, UINT32_MAX), 0);
}
