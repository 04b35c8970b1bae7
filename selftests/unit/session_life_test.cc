// SPDX-License-Identifier: LGPL-2.1-or-later
/* The life of a session, who may become active, and how many come back at a time. */
#include "core/quota.h"
#include "core/session_life.h"
#include "core/wake_gate.h"

#include <gtest/gtest.h>

using namespace cxlkv;

using State = SessionLife::State;

namespace {

constexpr SessionOptions options{.idle_ms = 1000,
				 .resume_ms = 100,
				 .warm_ms = 2000,
				 .cold_ms = 4000,
				 .drop_ms = 8000,
				 .min_residency_ms = 500};

} // namespace

TEST(SessionLife, SinksByStagesInSilence)
{
	SessionLife life;
	EXPECT_EQ(life.state(), State::Free);
	life.age(100000, options);
	EXPECT_EQ(life.state(), State::Free);
	life.use(1);
	State seen = life.state();
	std::vector<std::pair<uint64_t, State>> changes;
	for (uint64_t now = 1; now < 20000; now++) {
		life.age(now, options);
		if (life.state() != seen)
			changes.emplace_back(now, life.state());
		seen = life.state();
	}
	const std::vector<std::pair<uint64_t, State>> expected = {{1001, State::Idle},
								  {2001, State::ParkedWarm},
								  {4001, State::ParkedCold},
								  {8001, State::Dropped}};
	EXPECT_EQ(changes, expected);
}

TEST(SessionLife, StaysInAStageForAWhile)
{
	SessionLife life;
	life.use(1);
	/* Nobody looked for long: it does not fall through at once. */
	life.age(100000, options);
	EXPECT_EQ(life.state(), State::Idle);
	life.age(100499, options);
	EXPECT_EQ(life.state(), State::Idle);
	life.age(100500, options);
	EXPECT_EQ(life.state(), State::ParkedWarm);
}

TEST(SessionLife, OneStrayTouchDoesNotLiftIt)
{
	SessionLife life;
	life.use(1);
	life.park(10);
	EXPECT_EQ(life.state(), State::Idle);
	life.touch(1000, options.resume_ms);
	EXPECT_EQ(life.state(), State::Idle);
	EXPECT_EQ(life.used_ms(), 10u) << "nor keep it from leaving first";
	life.touch(1101, options.resume_ms);
	EXPECT_EQ(life.state(), State::Idle) << "too late after the first";
	life.touch(1200, options.resume_ms);
	EXPECT_EQ(life.state(), State::Active);
	life.park(1300);
	life.use(1301);
	EXPECT_EQ(life.state(), State::Active) << "what the engine says counts at once";
}

TEST(SessionLife, StagesThatNeverCome)
{
	SessionOptions o = options;
	o.warm_ms = o.cold_ms = o.drop_ms = 0;
	EXPECT_EQ(check_session_options(o), "");
	SessionLife life;
	life.use(1);
	for (uint64_t now = 1; now < 10000000; now += 600)
		life.age(now, o);
	EXPECT_EQ(life.state(), State::Idle);
}

TEST(SessionLife, ThresholdsStandInOrder)
{
	EXPECT_EQ(check_session_options({}), "");
	SessionOptions o = options;
	o.idle_ms = o.resume_ms;
	EXPECT_NE(check_session_options(o).find("idle_ms is 100"), std::string::npos);
	o = options;
	o.cold_ms = 1500;
	EXPECT_NE(check_session_options(o).find("cold_ms is 1500"), std::string::npos);
	o = options;
	o.warm_ms = 0;
	EXPECT_EQ(check_session_options(o), "");
	o.drop_ms = 3000;
	EXPECT_NE(check_session_options(o).find("drop_ms"), std::string::npos);
}

TEST(Admission, KeepsTheNextBlocksOfWhoIsActive)
{
	ActiveLoad load{2, 700, 200, 5000};
	EXPECT_EQ(admission_retry_ms(load, 1000, 100, 5500, options), 0u);
	EXPECT_EQ(admission_retry_ms(load, 1000, 101, 5500, options), 500u)
		<< "then the silent one is idle";
	EXPECT_EQ(admission_retry_ms(load, 1000, 101, 9000, options), 10u);
	load.reserve_bytes = 0;
	EXPECT_EQ(admission_retry_ms(load, 1000, 300, 5500, options), 0u);
	/* Alone it may be larger than memory. */
	EXPECT_EQ(admission_retry_ms({}, 1000, 5000, 5500, options), 0u);
}

TEST(WakeGate, BoundsCountAndBytesInOrder)
{
	WakeGate gate(2, 100);
	for (uint64_t id = 1; id <= 5; id++)
		ASSERT_TRUE(gate.enter({id, id == 4 ? 500u : 40u, 0}));
	EXPECT_EQ(gate.start(), (std::vector<uint64_t>{1, 2}));
	EXPECT_EQ(gate.running_bytes(), 80u);
	EXPECT_TRUE(gate.start().empty());
	gate.end(1);
	EXPECT_EQ(gate.start(), (std::vector<uint64_t>{3}));
	gate.end(2);
	EXPECT_TRUE(gate.start().empty()) << "one larger than the bound waits until it is alone";
	gate.end(3);
	EXPECT_EQ(gate.start(), (std::vector<uint64_t>{4}));
	gate.end(4);
	gate.end(4);
	EXPECT_EQ(gate.start(), (std::vector<uint64_t>{5}));
	gate.end(5);
	EXPECT_EQ(gate.running_bytes(), 0u);
}

TEST(WakeGate, NobodyWaitsPastTheDeadline)
{
	WakeGate gate(1, 100);
	ASSERT_TRUE(gate.enter({1, 10, 0}));
	ASSERT_TRUE(gate.enter({2, 10, 3000}));
	ASSERT_TRUE(gate.enter({3, 10, 2000}));
	EXPECT_EQ(gate.start().size(), 1u);
	EXPECT_EQ(gate.next_deadline_ns(), 2000u);
	EXPECT_TRUE(gate.expire(1999).empty());
	EXPECT_EQ(gate.expire(2000), (std::vector<uint64_t>{3}));
	EXPECT_EQ(gate.next_deadline_ns(), 3000u);
	gate.end(1);
	EXPECT_EQ(gate.start(), (std::vector<uint64_t>{2})) << "the first to ask of who is left";
	for (size_t i = 0; i < WakeGate::max_waiting; i++)
		ASSERT_TRUE(gate.enter({100 + i, 1, 0}));
	EXPECT_FALSE(gate.enter({99, 1, 0}));
}

TEST(Tenants, ByNameOrByUser)
{
	const Tenants tenants(
		{{"red", {1, 2, 3}, {1001, 1002}}, {"blue", {}, {}}, {"default", {9, 9, 9}, {}}});
	EXPECT_EQ(tenants[0].name, "default");
	EXPECT_EQ(tenants[0].quota.hot, 9u);
	const int red = tenants.identify(1001, "");
	ASSERT_GT(red, 0);
	EXPECT_EQ(tenants[static_cast<uint32_t>(red)].name, "red");
	EXPECT_EQ(tenants.identify(1001, "red"), red);
	EXPECT_EQ(tenants.identify(1003, "red"), -1) << "not his to be";
	EXPECT_EQ(tenants.identify(0, "red"), -1);
	EXPECT_EQ(tenants.identify(1003, ""), 0);
	EXPECT_GT(tenants.identify(1003, "blue"), 0);
	EXPECT_EQ(tenants.identify(1003, "green"), -1) << "no such tenant";
	EXPECT_EQ(Tenants({}).identify(7, ""), 0);
}

TEST(Quota, OfMemoryAltogether)
{
	EXPECT_EQ((Quota{10, 20, 30}.memory(true)), 30u);
	EXPECT_EQ((Quota{10, 20, 30}.memory(false)), 10u);
	EXPECT_EQ((Quota{10, no_quota, 30}.memory(true)), no_quota);
	EXPECT_EQ(Quota{}.memory(true), no_quota);
}
