/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/reuse_learner.h"

#include <algorithm>
#include <cmath>

namespace cxlkv {

namespace {

/* Blocks swept for each access. */
constexpr uint64_t sweep_share = 4;
/* Accesses worth learning from. */
constexpr uint64_t learn_accesses = 1024;

uint8_t kind_of(float ema)
{
	/* Half octaves from 1 down to 2^-19; 0 is the kind of a block that was never accessed. */
	float octaves = -std::log2(std::max(ema, 1e-6f));
	return static_cast<uint8_t>(1 + std::clamp(static_cast<int>(octaves * 2), 0, 38));
}

} // namespace

ReuseLearner::ReuseLearner(BlockTable &table, uint32_t nr_blocks)
    : table_(table), nr_blocks_(nr_blocks),
      swept_((uint64_t{nr_blocks} + segment_blocks - 1) / segment_blocks)
{
}

void ReuseLearner::accessed(uint32_t block, uint32_t now, float ema)
{
	uint32_t age = now - table_.accessed[block];
	if (age) {
		model_.watched(table_.kind[block], watched_age(block), age);
		model_.used(table_.kind[block], age);
	}
	table_.kind[block] = kind_of(ema);
	credit_ += sweep_share;
	nr_new_++;
}

void ReuseLearner::run(uint32_t now)
{
	for (size_t nr = 0; credit_ >= segment_blocks && nr < swept_.size(); nr++) {
		credit_ -= segment_blocks;
		sweep(next_segment_, now);
		next_segment_ = next_segment_ + 1 == swept_.size() ? 0 : next_segment_ + 1;
	}
	if (nr_new_ < learn_accesses)
		return;
	nr_new_ = 0;
	model_.learn(now);
}

void ReuseLearner::sweep(uint32_t segment, uint32_t now)
{
	uint32_t first = segment * segment_blocks;
	uint32_t end = std::min(nr_blocks_, first + segment_blocks);
	for (uint32_t b = first; b < end; b++) {
		Where where = table_.where(b);
		if (where == Where::Hot || where == Where::Warm || where == Where::Cold)
			model_.watched(table_.kind[b], watched_age(b), now - table_.accessed[b]);
	}
	swept_[segment] = now;
}

} // namespace cxlkv
