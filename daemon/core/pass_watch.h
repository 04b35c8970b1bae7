/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tells the passes of the module's sampler apart. A pass goes upward through an
 * arena, and reports only what was touched: one that reports below the last report
 * is another one. Where nothing like it comes for long, the module is asked how many
 * passes it has been through: with a small budget one takes many intervals, and of
 * who is stopped none reports anything. Pure: times and answers are passed in.
 */
#pragma once

#include <cstdint>

namespace cxlkv {

class PassWatch {
public:
	explicit PassWatch(uint64_t now_ms) : looked_ms_(now_ms) {}

	/* Touched pages of 64 from first on; true: they are of a new pass. */
	bool report(uint64_t first_page, uint64_t touched, uint64_t now_ms)
	{
		const bool is_same = first_page == first_page_ && !(touched & touched_);
		const bool is_new =
			first_page < first_page_ || (first_page == first_page_ && !is_same);
		const bool was_counted = counted_;

		touched_ = is_same ? touched_ | touched : touched;
		first_page_ = first_page;
		counted_ = false;
		if (!is_new)
			return false;
		looked_ms_ = now_ms;
		was_asked_ = false;
		return !was_counted;
	}
	/* A pass should have begun by now. */
	[[nodiscard]] bool is_late(uint64_t now_ms, uint32_t interval_ms) const
	{
		return now_ms - looked_ms_ >= uint64_t{was_asked_ ? 1u : 2u} * interval_ms;
	}
	/* The module's count; true: since the last answer one more is over. */
	bool answer(uint64_t nr_passes, uint64_t now_ms)
	{
		counted_ = was_asked_ && nr_passes > nr_passes_;
		was_asked_ = true;
		nr_passes_ = nr_passes;
		looked_ms_ = now_ms;
		return counted_;
	}

private:
	uint64_t first_page_ = 0, touched_ = 0; /* of the last report */
	uint64_t looked_ms_;
	uint64_t nr_passes_ = 0; /* the last answer */
	bool was_asked_ = false; /* since the pass began */
	bool counted_ = false;   /* the pass that reports next has been told of */
};

} // namespace cxlkv
