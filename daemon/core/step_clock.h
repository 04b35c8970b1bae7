/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The clock of the policy, in decode steps. Who decodes side by side shares a step:
 * it ends when one of them reports the second time, so the clock counts the steps of
 * the fastest, and one that stalls ages. Sessions report positions. An arena that is
 * sampled reports passes of the sampler over it that find something; those that find
 * nothing age it alone.
 */
#pragma once

#include <cstdint>

namespace cxlkv {

class StepClock {
public:
	[[nodiscard]] uint32_t now() const { return now_; }

	/* A session or an arena reports a step; seen is its own copy of the clock. */
	void step(uint32_t &seen)
	{
		if (seen == now_)
			now_++;
		seen = now_;
	}

private:
	uint32_t now_ = 1;
};

} // namespace cxlkv
