/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a transfer takes, learnt from transfers: a fixed part and a part by the
 * byte, by least squares over the recent ones. One that was disturbed, by the
 * scheduler or by other I/O, says nothing of the next one: none counts for more
 * than twice what is usual by the median of the last few. Pure.
 */
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace cxlkv {

class TransferModel {
public:
	/* Older transfers count 1/16 less with each new one. */
	void add(double bytes, double seconds)
	{
		if (!(bytes > 0) || !(seconds > 0))
			return;
		seconds = std::min(seconds, longest(bytes, seconds));
		constexpr double keep = 15.0 / 16;
		/* A large transfer must not drown the small ones. */
		const double weight = 1 / (bytes * bytes);
		n_ = n_ * keep + weight;
		x_ = x_ * keep + weight * bytes;
		y_ = y_ * keep + weight * seconds;
		xx_ = xx_ * keep + weight * bytes * bytes;
		xy_ = xy_ * keep + weight * bytes * seconds;
		nr_++;
	}

	[[nodiscard]] uint64_t nr_transfers() const { return nr_; }
	/* 0 = nothing is known. */
	[[nodiscard]] double bytes_per_s() const { return nr_ ? 1 / slope() : 0; }
	[[nodiscard]] double fixed_s() const
	{
		return nr_ ? std::max(0.0, (y_ - slope() * x_) / n_) : 0;
	}

private:
	double longest(double bytes, double seconds)
	{
		if (nr_ < 2) /* no line is known */
			return seconds;
		const double expected = fixed_s() + bytes * slope();
		ratios_[nr_ % ratios_.size()] = seconds / expected;
		auto sorted = ratios_;
		std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
		return 2 * expected * sorted[sorted.size() / 2];
	}
	[[nodiscard]] double slope() const
	{
		const double through_zero = xy_ / xx_;
		const double spread = n_ * xx_ - x_ * x_;
		/* All of one size: nothing tells the fixed part, the bytes carry it. */
		if (spread < 1e-3 * n_ * xx_)
			return through_zero;
		const double fitted = (n_ * xy_ - x_ * y_) / spread;
		/* Noise may tilt the line; no byte is free, and no fixed part is negative. */
		return std::clamp(fitted, through_zero / 16, through_zero);
	}

	double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
	uint64_t nr_ = 0;
	std::array<double, 5> ratios_{1, 1, 1, 1, 1};
};

} // namespace cxlkv
