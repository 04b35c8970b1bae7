/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What ages are counted in. An engine that reports positions and attention says
 * itself what a step is. Of others, blocks are only seen to be touched, once in a
 * pass of the sampler over their arena: there a pass is a step, which is over when
 * the next one begins. Half-way through, what was touched in the last one is as
 * young as it can be, however many steps others have made.
 */
#pragma once

#include <algorithm>
#include <cstdint>

namespace cxlkv {

/*
 * Decode steps. Sessions that decode side by side share one: it ends when one of
 * them reports its second position, so the clock counts the steps of the fastest
 * session, and one that stalls ages.
 */
class StepClock {
public:
	[[nodiscard]] uint32_t now() const { return now_; }

	/* A session reports a step; seen is its own copy of the clock. */
	void step(uint32_t &seen)
	{
		if (seen == now_)
			now_++;
		seen = now_;
	}
	/* Its time goes on from there, for who has counted further by another clock. */
	void reach(uint32_t step) { now_ = std::max(now_, step); }

private:
	uint32_t now_ = 1;
};

class ArenaClock {
public:
	explicit ArenaClock(StepClock &steps) : steps_(steps) {}

	[[nodiscard]] uint32_t now() const { return by_passes_ ? passes_ : steps_.now(); }

	/* Its engine reports a step of a session. */
	void step(uint32_t &seen)
	{
		steps_.step(seen);
		has_positions_ = true;
		by_steps();
	}
	/* And attention. */
	void scored()
	{
		has_scores_ = true;
		by_steps();
	}
	/* A pass begins, which is told from others by the time at which it did. */
	void pass(uint64_t begun_ms)
	{
		if (told() || begun_ms == begun_ms_)
			return;
		passes_ = now() + by_passes_;
		by_passes_ = true;
		begun_ms_ = begun_ms;
	}

private:
	[[nodiscard]] bool told() const { return has_positions_ && has_scores_; }
	void by_steps()
	{
		if (!by_passes_ || !told())
			return;
		by_passes_ = false;
		steps_.reach(passes_);
	}

	StepClock &steps_;
	uint32_t passes_ = 0;
	uint64_t begun_ms_ = 0;
	bool by_passes_ = false, has_positions_ = false, has_scores_ = false;
};

} // namespace cxlkv
