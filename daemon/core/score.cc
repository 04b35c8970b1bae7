/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/score.h"

#include <algorithm>
#include <cmath>

namespace cxlkv {

double half_life_steps(double alpha)
{
	return std::log(0.5) / std::log1p(-alpha);
}

double recency_decay(double age_steps, double tau_steps)
{
	return -std::expm1(-age_steps / tau_steps);
}

double eviction_priority(double ema, double decay)
{
	return (1 - ema) * decay;
}

double prefetch_priority(double distance_tokens)
{
	return 1 / (1 + distance_tokens / 100);
}

Ema::Ema(double alpha)
    : alpha_(static_cast<float>(alpha)),
      log_keep_(static_cast<float>(std::max(-1000.0, std::log1p(-alpha))))
{
	for (uint32_t n = 0; n < table_steps; n++)
		table_[n] = static_cast<float>(std::pow(1 - alpha, n));
}

float Ema::long_decay(uint32_t steps) const
{
	return std::exp(log_keep_ * static_cast<float>(steps));
}

} // namespace cxlkv
