/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The clock of the policy, in decode steps. Who decodes side by side shares a step:
 * it ends when one of them reports the second time, so the clock counts the steps of
 * the fastest, and one that stalls ages. Sessions report positions. An arena that is
 * only sampled reports passes of the sampler over it.
 */
#pragma once

#include <cstdint>

namespace cxlkv {

class StepClock {
public:
	[[nodiscard]] uint32_t now() const { return now_; }

	/* A session reports a step; seen is its own copy of the clock. */
	void step(uint32_t &seen)
	{
		pass(seen);
		told_ = true;
	}
	/* An arena is sampled, and something of it was touched. */
	void pass(uint32_t &seen)
	{
		if (seen == now_)
			now_++;
		seen = now_;
	}
	/* Nothing was: a step, if nobody ever reports any other. */
	void silent_pass(uint32_t &seen)
	{
		if (told_)
			seen = now_;
		else
			pass(seen);
	}

private:
	uint32_t now_ = 1;
	bool told_ = false; /* a session reported a step */
};

} // namespace cxlkv
