/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One score for a run of blocks: the EMA of score.h by vectors, at the speed of memory. */
#pragma once

#include "core/block_table.h"
#include "core/score.h"

namespace cxlkv {

struct RunScored {
	double resident = 0;     /* what the sum of the EMAs of resident blocks grew by */
	bool promotable = false; /* a warm block scores at least promote_score */
};

/*
 * Ema::update() of blocks first..first+nr-1 by one score, at step now. Blocks
 * that are empty stay as they are.
 */
RunScored score_run(BlockTable &table, uint32_t first, uint32_t nr, const Ema &ema, uint32_t now,
		    float score, float promote_score);

} // namespace cxlkv
