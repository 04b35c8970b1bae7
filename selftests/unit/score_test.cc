/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The formulas of design.md section 6, by their worked examples. */
#include "core/score_run.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

using namespace cxlkv;

namespace {

double rounded(double value, int digits)
{
	double scale = std::pow(10, digits);
	return std::round(value * scale) / scale;
}

} // namespace

TEST(Score, HalfLifeOfAlpha02Is31Steps)
{
	EXPECT_DOUBLE_EQ(rounded(half_life_steps(0.2), 1), 3.1);
	Ema ema(0.2);
	EXPECT_GT(ema.decay(3), 0.5);
	EXPECT_LT(ema.decay(4), 0.5);
}

TEST(Score, RecencyOfTheWorkedExamples)
{
	EXPECT_DOUBLE_EQ(rounded(recency_decay(50, 1000), 3), 0.049);
	EXPECT_DOUBLE_EQ(rounded(recency_decay(2000, 1000), 3), 0.865);
	EXPECT_DOUBLE_EQ(rounded(recency_decay(50, 1000), 4), 0.0488);
	EXPECT_DOUBLE_EQ(rounded(recency_decay(2000, 1000), 4), 0.8647);
}

TEST(Score, EvictionPriorityOfTheWorkedExamples)
{
	EXPECT_DOUBLE_EQ(rounded(eviction_priority(0.211, 0.049), 3), 0.039);
	EXPECT_DOUBLE_EQ(rounded(eviction_priority(0.08, 0.865), 3), 0.796);
	EXPECT_DOUBLE_EQ(rounded(eviction_priority(0.211, recency_decay(50, 1000)), 4), 0.0385);
	EXPECT_DOUBLE_EQ(rounded(eviction_priority(0.08, recency_decay(2000, 1000)), 4), 0.7955);
}

TEST(Score, PrefetchPriorityFallsWithDistance)
{
	EXPECT_DOUBLE_EQ(prefetch_priority(0), 1);
	EXPECT_DOUBLE_EQ(prefetch_priority(100), 0.5);
	EXPECT_DOUBLE_EQ(prefetch_priority(512), 1 / 6.12);
}

TEST(Score, LazyDecayEqualsDecayAtEveryStep)
{
	for (double alpha : {0.001, 0.2, 0.9, 1.0}) {
		Ema lazy(alpha);
		double eager = 0;
		float ema = 0;
		uint32_t last = 0;
		for (uint32_t step = 1; step <= 500; step++) {
			bool touched = step % 97 == 0 || step == 1 || step == 2;
			eager = (touched ? alpha * 0.7 : 0) + (1 - alpha) * eager;
			if (!touched)
				continue;
			ema = lazy.update(ema, step - last, 0.7f);
			last = step;
			EXPECT_NEAR(ema, eager, 1e-5) << "alpha " << alpha << " step " << step;
		}
	}
}

TEST(Score, RunsOfBlocksGetWhatSingleBlocksGet)
{
	constexpr uint32_t nr = 1003, now = 100'000;
	for (double alpha : {0.001, 0.2, 1.0}) {
		Ema rule(alpha);
		BlockTable run(nr), single(nr);
		for (uint32_t i = 0; i < nr; i++) {
			/* Short and long gaps, none, and stretches of equal ones; every place. */
			uint32_t age = i < 500 ? i % 300 : i / 100 * 10000;
			for (BlockTable *table : {&run, &single}) {
				table->ema[i] = static_cast<float>(i) / nr;
				table->scored[i] = now - age;
				table->set_where(i, static_cast<Where>(i / 3 % 5));
			}
		}
		RunScored got = score_run(run, 0, nr, rule, now, 0.3f, 0.5f), sum;
		for (uint32_t i = 0; i < nr; i++) {
			RunScored one = score_run(single, i, 1, rule, now, 0.3f, 0.5f);
			sum.resident += one.resident;
			sum.promotable |= one.promotable;
			EXPECT_NEAR(run.ema[i], single.ema[i], 1e-6) << i;
			EXPECT_EQ(run.scored[i], single.scored[i]) << i;
		}
		EXPECT_NEAR(got.resident, sum.resident, 1e-3);
		EXPECT_EQ(got.promotable, sum.promotable);
	}
}
