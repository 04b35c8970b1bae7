/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which pass of the module's sampler a report is of, as the time at which that pass
 * began to report. A pass goes upward through an arena, and reaches us over many
 * ticks: what is reported below the last report is of another one. One that only goes
 * on where the last ended, or that takes long, is given a new time after two intervals.
 * Pure: times are passed in.
 */
#pragma once

#include <cstdint>

namespace cxlkv {

class PassStamp {
public:
	/* Touched pages of 64 from the first on. */
	uint64_t of(uint64_t first_page, uint64_t touched, uint64_t now_ms, uint32_t interval_ms)
	{
		/* Where two areas of memory meet, a word is reported in two parts. */
		const bool is_part = first_page == first_page_ && !(touched & touched_);

		if ((first_page <= first_page_ && !is_part) ||
		    now_ms - begun_ms_ > 2 * uint64_t{interval_ms})
			begun_ms_ = now_ms;
		touched_ = touched | (is_part ? touched_ : 0);
		first_page_ = first_page;
		return begun_ms_;
	}

private:
	uint64_t begun_ms_ = 0;
	uint64_t first_page_ = 0, touched_ = 0; /* of the last report */
};

} // namespace cxlkv
