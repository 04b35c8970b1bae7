/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/reuse_learner.h"

#include <algorithm>
#include <bit>

namespace cxlkv {

namespace {

/* Blocks swept for each access. */
constexpr uint64_t sweep_share = 4;
/* Accesses worth learning from. */
constexpr uint64_t learn_accesses = 1024;

} // namespace

ReuseLearner::ReuseLearner(BlockTable &table, uint32_t nr_blocks, double half_life_steps)
    : table_(table), nr_blocks_(nr_blocks),
      swept_((uint64_t{nr_blocks} + segment_blocks - 1) / segment_blocks), model_(half_life_steps)
{
}

/* Half octaves from 1 down to 2^-19; 0 is the kind of a block that was never accessed. */
uint8_t ReuseLearner::kind_of(float ema)
{
	uint32_t bits = std::bit_cast<uint32_t>(ema);
	int exponent = static_cast<int>(bits >> 23) - 127;
	uint32_t mantissa = bits & 0x7fffff;
	/* -2 log2(ema), rounded down: the mantissa is in [1, 2), and 0x3504f3 is sqrt(2)'s. */
	int half_octaves = -2 * exponent - (mantissa > 0) - (mantissa > 0x3504f3);
	return static_cast<uint8_t>(1 + std::clamp(half_octaves, 0, 38));
}

void ReuseLearner::accessed(uint32_t first, uint32_t nr, BlockState before, uint32_t now)
{
	uint32_t age = now - before.accessed;
	uint8_t kind = BlockTable::kind_of(before.word);
	if (age) {
		model_.watched(kind, watched_age(first / segment_blocks, before.accessed), age, nr);
		model_.used(kind, age, nr);
	}
	credit_ += nr * sweep_share;
	nr_new_ += nr;
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
			model_.watched(table_.kind(b), watched_age(segment, table_.accessed(b)),
				       now - table_.accessed(b));
	}
	swept_[segment] = now;
}

} // namespace cxlkv
