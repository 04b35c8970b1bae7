/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How likely it is that a block is used again, learned from the uses seen.
 *
 * Blocks are of one of a few kinds, which the caller tells apart by what it
 * knows of a block at its last use. For each kind and age since the last use
 * the hazard is counted: uses over block-time observed, of resident and of
 * evicted blocks alike, so that what the cache does cannot bend the estimate.
 *
 * The worth of keeping a block is then the Gittins index of its next use,
 *	max over T of P(used within T) / E[time until used, at most T],
 * uses per time of the room it takes. Time is ms or steps, as the caller likes. Keeping the blocks
 *of the highest index is optimal where uses are independent renewals (Gittins 1979; the hit density
 * of LHD, NSDI'18, is the same thought with the horizon that evictions give).
 */
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cxlkv {

class ReuseModel {
public:
	using Kind = uint8_t;

	static constexpr unsigned nr_kinds = 41;

	/* half_life: time after which what was seen counts half. */
	explicit ReuseModel(double half_life);
	void set_half_life(double half_life) { half_life_ = half_life; }

	/* nr blocks of this kind were watched while their age went from..to. */
	void watched(Kind kind, uint64_t from, uint64_t to, uint32_t nr = 1);
	/* And were used at this age, at the end of the unit of time before it. */
	void used(Kind kind, uint64_t age, uint32_t nr = 1)
	{
		uses_[at(kind, bin_of(age - std::min<uint64_t>(age, 1)))] += nr;
	}

	/* Draws the conclusions from what was seen. */
	void learn(uint64_t now);

	/* Blocks of this age were watched, be it of other kinds: its worth is more than a guess. */
	[[nodiscard]] bool knows(uint64_t age) const { return known_[bin_of(age)]; }
	/* Uses per time that keeping the block earns; the lowest leaves first. */
	[[nodiscard]] double worth(Kind kind, uint64_t age) const
	{
		return worth_[at(kind, bin_of(age))];
	}

private:
	static constexpr unsigned nr_bins = 64; /* half octaves: up to 2^31 */

	static unsigned bin_of(uint64_t age);
	static unsigned at(Kind kind, unsigned bin) { return kind * nr_bins + bin; }
	void add_passes();
	void learn_kind(Kind kind, const std::vector<double> &prior);

	double half_life_;
	std::vector<double> uses_, block_time_; /* by kind and bin of age */
	/* Blocks that were watched through a whole bin, as differences from bin to bin: watching
	 * costs the same however many bins it spans. */
	std::vector<int64_t> passes_;
	std::vector<double> worth_;
	std::vector<bool> known_; /* by bin of age: block_time_ outweighs the prior */
	uint64_t learned_ = 0;
};

} // namespace cxlkv
