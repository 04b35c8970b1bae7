/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Feeds the reuse model with the blocks of an arena, in decode steps. Kinds are
 * octaves of the EMA that a block had at its last access.
 *
 * That a block is not accessed is told to the model by a sweep over the table,
 * a segment at a time, at most a few blocks for each access that was seen.
 */
#pragma once

#include "core/block_table.h"
#include "core/reuse_model.h"

#include <vector>

namespace cxlkv {

class ReuseLearner {
public:
	ReuseLearner(BlockTable &table, uint32_t nr_blocks, double half_life_steps);
	void set_half_life(double steps) { model_.set_half_life(steps); }

	/* Adjacent blocks of a segment, all of this kind and last accessed then, are accessed at
	 * step now. */
	void accessed(uint32_t first, uint32_t nr, BlockState before, uint32_t now);
	/* What a block of this EMA is after an access. */
	static uint8_t kind_of(float ema);
	/* Now and then: sweeps and learns as much as was earned by accesses. */
	void run(uint32_t now);

	[[nodiscard]] bool knows(uint32_t age_steps) const { return model_.knows(age_steps); }
	[[nodiscard]] double worth(uint8_t kind, uint32_t age_steps) const
	{
		return model_.worth(kind, age_steps);
	}

	static constexpr uint32_t segment_blocks = 1024;

private:
	void sweep(uint32_t segment, uint32_t now);
	/* Age until which the model has watched a block of the segment that was accessed then. */
	[[nodiscard]] uint32_t watched_age(uint32_t segment, uint32_t accessed) const
	{
		uint32_t swept = swept_[segment];
		return swept > accessed ? swept - accessed : 0;
	}

	BlockTable &table_;
	uint32_t nr_blocks_;
	std::vector<uint32_t> swept_; /* step of the last sweep, by segment */
	uint32_t next_segment_ = 0;
	uint64_t credit_ = 0; /* accesses since the last sweep of a segment */
	uint64_t nr_new_ = 0; /* accesses since the model last learned */
	ReuseModel model_;
};

} // namespace cxlkv
