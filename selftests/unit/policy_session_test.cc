/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whole sessions: who leaves first, quotas of tenants, waking. */
#include "lib/policy_fixture.h"

using namespace cxlkv;

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
	EXPECT_EQ(blocks(orders, Action::Prefetch).size(), 0u) << "its full set does not fit yet";
	obey(orders);
	uint32_t used = 64 - static_cast<uint32_t>(blocks(orders, Action::Spill).size());
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

TEST_F(PolicyTest, OfTwoWakesThatDoNotFitTogetherOneIsWholeAndOfTheOtherNothing)
{
	start_cold(2, 100);
	ASSERT_EQ(policy->heads(1)[0].nr_cold, 32u);
	hint(CXL_KV_HINT_WAKE, 0);
	hint(CXL_KV_HINT_WAKE, 1);
	auto orders = plan(hot_of(0, 100, 98, 90));
	auto fetched = blocks(orders, Action::Prefetch);
	EXPECT_EQ(fetched.size(), 64u);
	for (uint32_t b : fetched)
		EXPECT_LT(b, 64u);
	obey(orders);
	EXPECT_TRUE(plan(hot_of(64, 100, 98, 90)).empty());
}

TEST_F(PolicyTest, WakeOfASessionLargerThanHotBringsWhatFits)
{
	start_cold(1, 40);
	hint(CXL_KV_HINT_WAKE, 0);
	EXPECT_EQ(blocks(plan(hot_of(0, 40, 38, 30)), Action::Prefetch).size(), 40u);
}

TEST_F(PolicyTest, PrefetchAroundAPositionTakesTheNearestThatFit)
{
	start_cold(2, 200);
	policy->prefetch(1, 1, 5 * 16 + 3, 3 * 16);
	auto orders = plan(hot_of(0, 200, 190, 180));
	std::set<uint32_t> around;
	for (uint32_t head = 0; head < 4; head++)
		for (uint32_t b = 2; b <= 8; b++)
			around.insert(64 + head * 16 + b);
	EXPECT_EQ(blocks(orders, Action::Prefetch), around);
	obey(orders);
	policy->prefetch(1, 0, 256, 2 * 16);
	EXPECT_EQ(blocks(plan(hot_of(28, 200, 32, 30)), Action::Prefetch),
		  std::set<uint32_t>({15, 31, 47, 63}))
		<< "four fit, so the block at the position of each head";
}

/* The daemon's requests that wait for room, and the plan makes it. */
TEST_F(PolicyTest, ForAWakeNobodyInUseMakesWayNorWhoIsBeingWoken)
{
	start();
	for (uint32_t slot = 0; slot < 3; slot++)
		make_slot(slot);
	policy->open_session(1, 0, now_ms);
	hint(CXL_KV_HINT_WAKE, 1);
	hint(CXL_KV_HINT_PARK, 2);
	now_ms += 1000;
	PlanInput input = hot_of(192, 200, 199, 198);
	input.waking_hot_bytes = 128 * block_bytes;
	auto spilled = blocks(plan(input), Action::Spill);
	EXPECT_EQ(spilled.size(), 64u);
	for (uint32_t b : spilled)
		EXPECT_EQ(b / 64, 2u);
	input.wanted_hot_bytes = 136 * block_bytes; /* of who is active: now the others too */
	EXPECT_GE(blocks(plan(input), Action::Spill).size(), 64u);
}

TEST_F(PolicyTest, ARequestFetchesASessionAndThePlanDoesNot)
{
	start();
	make_slot(0);
	moved(0, 64, Where::Cold);
	now_ms += 1000;
	hint(CXL_KV_HINT_WAKE, 0);
	policy->fetched_by_request(1, 0);
	EXPECT_TRUE(plan(hot_of(0, 100, 98, 90)).empty());
	hint(CXL_KV_HINT_WAKE, 0);
	EXPECT_EQ(blocks(plan(hot_of(0, 100, 98, 90)), Action::Prefetch).size(), 64u);
}

/* Passes of a second are a little more than a second apart. */
TEST_F(PolicyTest, AnIdleSessionThatIsTouchedInTwoPassesInARowIsActiveAgain)
{
	for (uint32_t apart_ms : {500, 1005, 30'000}) {
		start();
		policy->open_session(1, 0, now_ms);
		policy->open_session(1, 1, now_ms);
		make_slot(0);
		make_slot(1);
		now_ms += 40'000;
		plan(hot_of(128, 200, 190, 180));
		ASSERT_FALSE(policy->is_active(1, 0));
		policy->sample(1, 64, 1, 0, now_ms += apart_ms); /* of slot 1 */
		policy->sample(1, 0, 1, 0, now_ms += apart_ms);
		EXPECT_FALSE(policy->is_active(1, 0)) << "once, " << apart_ms;
		policy->sample(1, 0, 1, 0, now_ms += apart_ms);
		EXPECT_TRUE(policy->is_active(1, 0)) << "twice, " << apart_ms;
	}
}

TEST_F(PolicyTest, LoadCountsWhatAWakeBringsBack)
{
	start();
	make_slot(0);
	moved(0, 32, Where::Cold);
	hint(CXL_KV_HINT_WAKE, 0);
	EXPECT_EQ(policy->load(nullptr, 1, 1, now_ms).bytes, 64u * block_bytes);
	EXPECT_EQ(policy->load(nullptr, 1, 0, now_ms).nr, 0u);
	EXPECT_EQ(policy->load(nullptr, 1, 1, now_ms + 3'600'000).bytes, 32u * block_bytes)
		<< "it never came";
}
