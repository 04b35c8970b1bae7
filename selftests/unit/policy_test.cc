/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the policy is told: options, hints, samples, moves; and what it says of heads. */
#include "lib/policy_fixture.h"

#include <cmath>
#include <variant>

using namespace cxlkv;

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

TEST_F(PolicyTest, EveryOptionIsCheckedAtBothEndsOfItsRange)
{
	struct Range {
		const char *name;
		std::variant<double PolicyOptions::*, uint32_t PolicyOptions::*> option;
		double low, high;
	};
	const Range ranges[] = {
		{"alpha", &PolicyOptions::alpha, 1e-4, 1},
		{"access_mass", &PolicyOptions::access_mass, 0, 1},
		{"decay_steps", &PolicyOptions::decay_steps, 1, 1e9},
		{"anchor_blocks", &PolicyOptions::anchor_blocks, 0, 1024},
		{"head_floor", &PolicyOptions::head_floor, 0, 1},
		{"prefetch_window_tokens", &PolicyOptions::prefetch_window_tokens, 0, 1 << 20},
		{"prefetch_layers", &PolicyOptions::prefetch_layers, 0, 64},
		{"phase_ratio", &PolicyOptions::phase_ratio, 1, 1e6},
		{"phase_hysteresis", &PolicyOptions::phase_hysteresis, 0.01, 1},
		{"reuse_half_life_steps", &PolicyOptions::reuse_half_life_steps, 100, 1e9},
		{"promote_score", &PolicyOptions::promote_score, 0, 1},
		{"demote_score", &PolicyOptions::demote_score, 0, 1},
		{"min_residency_ms", &PolicyOptions::min_residency_ms, 0, 16'000},
		{"move_residency_ms", &PolicyOptions::move_residency_ms, 0, 16'000},
		{"refusal_ms", &PolicyOptions::refusal_ms, 1, 250},
		{"order_timeout_ms", &PolicyOptions::order_timeout_ms, 100, 16'000},
		{"wake_ms", &PolicyOptions::wake_ms, 100, 600'000},
		{"max_extent_bytes", &PolicyOptions::max_extent_bytes, 4096, 2 << 20},
	};
	for (const Range &range : ranges) {
		auto check = [&](double value) {
			PolicyOptions options;
			options.demote_score = 0;
			options.promote_score = 1;
			std::visit(
				[&](auto member) {
					using T = std::decay_t<decltype(options.*member)>;
					options.*member = static_cast<T>(value);
				},
				range.option);
			return check_options(options);
		};
		const bool whole = std::holds_alternative<uint32_t PolicyOptions::*>(range.option);
		const double above = whole ? range.high + 1 : range.high * 1.001;
		EXPECT_EQ(check(range.low), "");
		EXPECT_EQ(check(range.high), "");
		EXPECT_TRUE(check(above).starts_with(range.name)) << range.name;
		if (range.low > 0 || !whole) {
			const double below = whole ? range.low - 1 : range.low - 1e-5;
			EXPECT_TRUE(check(below).starts_with(range.name)) << range.name;
		}
	}
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

/* design.md section 6: ema = (1 - alpha) * ema in each step that touches nothing. */
TEST_F(PolicyTest, ScoresOfAClientThatStoppedDecayByTheFormulaInEachInterval)
{
	start();
	make_slot(0);
	for (int i = 0; i < 5; i++) {
		policy->sample(1, 0, 0xff, 0, now_ms += 1000);
		policy->interval(1);
	}
	const double at_stop = policy->heads(1)[0].ema_sum, block = policy->score(1, 3);
	ASSERT_GT(at_stop, 0);
	policy->interval(1); /* the pass may have come a little later */
	EXPECT_EQ(policy->score(1, 3), block);
	for (int n = 1; n <= 40; n++) {
		policy->interval(1);
		EXPECT_NEAR(policy->heads(1)[0].ema_sum, at_stop * std::pow(0.8, n), 1e-5) << n;
		EXPECT_NEAR(policy->score(1, 3), block * std::pow(0.8, n), 1e-6) << n;
	}
}

/* Which another engine may do, or have done, beside it. */
TEST_F(PolicyTest, ScoresOfAClientThatStoppedDecayThoughAnotherReportedSteps)
{
	start();
	make_slot(0);
	policy->add_arena(2, geometry);
	hint(CXL_KV_HINT_POSITION, 0, 1);
	hint(CXL_KV_HINT_POSITION, 0, 2);
	policy->moved({2, 0, 64}, Where::Hot, now_ms);
	for (int i = 0; i < 5; i++) {
		policy->sample(2, 0, 0xff, 0, now_ms += 1000);
		policy->interval(2);
	}
	const double at_stop = policy->score(2, 3);
	for (int n = 0; n <= 10; n++) {
		policy->interval(2);
		EXPECT_NEAR(policy->score(2, 3), at_stop * std::pow(0.8, n), 1e-6) << n;
	}
}

/* An engine that reported two steps, a score in the second, and none since; another arena beside.
 */
class PolicyOfStepsTest : public PolicyTest {
protected:
	void SetUp() override
	{
		start();
		make_slot(0);
		hint(CXL_KV_HINT_POSITION, 0, 1);
		hint(CXL_KV_HINT_POSITION, 0, 2);
		score(0, 0, 0, 4, 0.5);
		before = policy->score(1, 0);
		policy->add_arena(2, geometry);
	}

	double before = 0;
};

TEST_F(PolicyOfStepsTest, IntervalsAreNoStepsOfAnEngineThatReportsItsOwn)
{
	/* No pass over either ever finds anything. */
	for (int n = 1; n <= 10; n++) {
		policy->interval(1);
		policy->interval(2);
	}
	EXPECT_EQ(policy->score(1, 0), before);
}

/* Nor is what one client that fell silent does not do. */
TEST_F(PolicyOfStepsTest, SilenceAgesNobodyElse)
{
	policy->moved({2, 0, 64}, Where::Hot, now_ms);
	policy->sample(2, 0, 0xff, 0, now_ms += 1000);
	const double after_touch = policy->score(1, 0), touched = policy->score(2, 3);
	EXPECT_GE(after_touch, before * 0.8 - 1e-6); /* a step of a client beside it */
	for (int n = 1; n <= 20; n++) {
		policy->interval(1);
		policy->interval(2);
	}
	EXPECT_EQ(policy->score(1, 0), after_touch);
	EXPECT_LT(policy->score(2, 3), touched * std::pow(0.8, 15));
	/* It comes back, and is as young as can be. */
	policy->sample(2, 0, 0xff, 0, now_ms += 1000);
	EXPECT_GT(policy->score(2, 3), 0.15);
	EXPECT_GE(policy->score(1, 0), after_touch * 0.8 - 1e-6);
}

/* Arenas whose passes are at different times, a step is one of each. */
TEST_F(PolicyTest, ManyArenasThatAreSampledAgeNoFasterThanOne)
{
	start();
	for (uint32_t arena = 2; arena <= 9; arena++)
		policy->add_arena(arena, geometry);
	make_slot(0);
	for (int i = 0; i < 30; i++)
		for (uint32_t arena = 1; arena <= 9; arena++) {
			policy->sample(arena, 0, i < 20 || arena > 1 ? 0xff : 0xf, 0,
				       now_ms += 100);
			policy->interval(arena);
		}
	EXPECT_NEAR(policy->score(1, 7), (1 - std::pow(0.8, 20)) * std::pow(0.8, 10), 1e-5);
}

/* Others make steps between two of its passes, and one is reported in parts: what is touched in
 * each is not given up for what another one uses again. */
TEST_F(PolicyTest, WhatIsTouchedInEachPassIsYoungUntilThatPassIsOver)
{
	start();
	policy->add_arena(2, geometry);
	policy->open_session(1, 0, now_ms);
	policy->open_session(2, 0, now_ms);
	make_slot(0);
	moved(64, 128, Where::Warm); /* of which nothing is touched: how else were ages known */
	policy->moved({2, 0, 64}, Where::Warm, now_ms);
	now_ms += 6000;
	auto plan_full = [&] {
		PlanInput in = hot_of(64, 100, 64, 64);
		in.warm = {192 * block_bytes, 400 * block_bytes, 390 * block_bytes,
			   380 * block_bytes};
		return plan(in);
	};
	for (int i = 0; i < 60; i++) {
		const uint64_t pass_ms = now_ms += 100;
		for (int part = 0; part < 2; part++) {
			policy->sample(1, 32 * part, 0xffffffff, 0, pass_ms);
			EXPECT_TRUE(blocks(plan_full(), Action::Demote).empty()) << i;
		}
		policy->interval(1);
		for (int n = 0; n < 2; n++) {
			policy->sample(2, 0, i < 40 ? 0 : 3, 0, now_ms += 100);
			policy->interval(2);
			EXPECT_TRUE(blocks(plan_full(), Action::Demote).empty()) << i;
		}
	}
}

/* It would look as if it were used again and again. */
TEST_F(PolicyTest, ALargeBlockThatIsReportedInPartsIsUsedOnce)
{
	start();
	make_slot(0);
	for (int part = 0; part < 8; part++)
		policy->sample(1, 0, 1, 0, now_ms);
	EXPECT_NEAR(policy->score(1, 0), 0.2, 1e-6);
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
