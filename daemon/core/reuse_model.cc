/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/reuse_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cxlkv {

namespace {

/* A kind that was seen little is believed to be like all others: as if by so many blocks. */
constexpr double prior_blocks = 20;

/*
 * First age of a bin; one more than there are bins. Ages are whole numbers, and
 * so the half octave from 1.4 to 2 has none: it is empty.
 */
double bin_begin(unsigned bin)
{
	static const std::vector<double> begin = [] {
		std::vector<double> all(1, 0);
		for (unsigned i = 0; i < 64; i++)
			all.push_back(std::ceil(std::exp2(i / 2.0)));
		return all;
	}();
	return begin[bin];
}

double prior_time(unsigned bin)
{
	return prior_blocks * std::max(bin_begin(bin + 1) - bin_begin(bin), 1.0);
}

} // namespace

ReuseModel::ReuseModel(double half_life)
    : half_life_(half_life), uses_(nr_kinds * nr_bins), block_time_(nr_kinds * nr_bins),
      passes_(nr_kinds * nr_bins), worth_(nr_kinds * nr_bins), known_(nr_bins)
{
	/* Until something was learned: the older, the less. */
	for (unsigned i = 0; i < worth_.size(); i++)
		worth_[i] = 1 / (1 + bin_begin(i % nr_bins));
}

unsigned ReuseModel::bin_of(uint64_t age)
{
	if (!age)
		return 0;
	unsigned octave = static_cast<unsigned>(std::bit_width(age)) - 1;
	/* The upper half octave begins at sqrt(2): age^2 >= 2^(2 octave + 1). */
	unsigned half = octave < 31 && age * age >> (2 * octave + 1) ? 1 : 0;
	return std::min(1 + 2 * octave + half, nr_bins - 1);
}

void ReuseModel::watched(Kind kind, uint64_t from_age, uint64_t to_age, uint32_t nr)
{
	if (from_age >= to_age)
		return;
	double from = static_cast<double>(from_age), to = static_cast<double>(to_age);
	unsigned first = bin_of(from_age), last = bin_of(to_age);
	if (first == last) {
		block_time_[at(kind, first)] += nr * (to - from);
		return;
	}
	block_time_[at(kind, first)] += nr * (bin_begin(first + 1) - from);
	block_time_[at(kind, last)] += nr * (to - bin_begin(last));
	passes_[at(kind, first + 1)] += nr;
	passes_[at(kind, last)] -= nr;
}

void ReuseModel::add_passes()
{
	for (unsigned kind = 0; kind < nr_kinds; kind++) {
		int64_t nr = 0;
		for (unsigned bin = 0; bin < nr_bins; bin++) {
			unsigned i = at(static_cast<Kind>(kind), bin);
			nr += passes_[i];
			passes_[i] = 0;
			block_time_[i] +=
				static_cast<double>(nr) * (bin_begin(bin + 1) - bin_begin(bin));
		}
	}
}

void ReuseModel::learn(uint64_t now)
{
	double keep = std::exp2(-static_cast<double>(now - learned_) / half_life_);
	learned_ = now;
	add_passes();

	std::vector<double> rate(nr_bins); /* uses per block-time, over all kinds */
	for (unsigned bin = 0; bin < nr_bins; bin++) {
		double uses = 0, block_time = 0;
		for (unsigned kind = 0; kind < nr_kinds; kind++) {
			uses += uses_[at(static_cast<Kind>(kind), bin)] *= keep;
			block_time += block_time_[at(static_cast<Kind>(kind), bin)] *= keep;
		}
		rate[bin] = uses / std::max(block_time, 1.0);
		known_[bin] = block_time >= prior_time(bin);
	}
	for (unsigned kind = 0; kind < nr_kinds; kind++)
		learn_kind(static_cast<Kind>(kind), rate);
}

void ReuseModel::learn_kind(Kind kind, const std::vector<double> &prior)
{
	double rate[nr_bins], width[nr_bins];
	for (unsigned bin = 0; bin < nr_bins; bin++) {
		width[bin] = bin_begin(bin + 1) - bin_begin(bin);
		double block_time = prior_time(bin);
		rate[bin] = (uses_[at(kind, bin)] + prior[bin] * block_time) /
			    (block_time_[at(kind, bin)] + block_time);
	}
	for (unsigned first = 0; first < nr_bins; first++) {
		double unused = 1, time = 0, best = 0;
		for (unsigned bin = first; bin < nr_bins; bin++) {
			/* On average a block is in the middle of the ages of its first bin. */
			double span = bin == first ? (width[bin] + 1) / 2 : width[bin];
			double left = unused * std::exp(-rate[bin] * span);
			time += (unused + left) / 2 * span;
			unused = left;
			best = std::max(best, (1 - unused) / time);
		}
		worth_[at(kind, first)] = best;
	}
}

} // namespace cxlkv
