/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The formulas of design.md section 6, one function each. [S] is the paper
 * that the project implements; its worked examples are score_test.cc.
 */
#pragma once

#include <cstdint>

namespace cxlkv {

/* Steps after which a score that is not renewed has halved: 3.1 for alpha 0.2 [S]. */
double half_life_steps(double alpha);

/* decay = 1 - exp(-age/tau): 0.049 at age 50, 0.865 at age 2000 with tau 1000 [S]. */
double recency_decay(double age_steps, double tau_steps);

/* (1 - ema) * decay; the highest leaves first [S]. */
double eviction_priority(double ema, double decay);

/* 1 / (1 + distance/100), distance in tokens; the highest is fetched first [S]. */
double prefetch_priority(double distance_tokens);

/*
 * The EMA with lazy decay: a block that nobody touches costs nothing, and when
 * it is looked at the (1 - alpha)^n of the n steps in between is made up for.
 */
class Ema {
public:
	explicit Ema(double alpha);

	/* (1 - alpha)^steps */
	[[nodiscard]] float decay(uint32_t steps) const
	{
		return steps < table_steps ? table_[steps] : long_decay(steps);
	}

	/*
	 * ema = alpha * score + (1 - alpha)^steps * ema. A second score in one step
	 * counts as a step of its own, so that the sum stays a mean.
	 */
	[[nodiscard]] float update(float ema, uint32_t steps, float score) const
	{
		return alpha_ * score + decay(steps ? steps : 1) * ema;
	}

	[[nodiscard]] float alpha() const { return alpha_; }
	/* ln(1 - alpha), finite for alpha 1 too */
	[[nodiscard]] float log_keep() const { return log_keep_; }

private:
	[[nodiscard]] float long_decay(uint32_t steps) const;

	static constexpr uint32_t table_steps = 64;
	float alpha_;
	float log_keep_;
	float table_[table_steps];
};

} // namespace cxlkv
