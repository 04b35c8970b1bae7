/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Spreads bytes over nodes so that each gets a share by its weight (weighted
 * fair queuing, Demers et al., SIGCOMM'89: the least served for its weight is
 * next). A node that had no room does not catch up later in one burst.
 */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cxlkv {

class Spread {
public:
	/* Weights above 0, one a node; at least one. */
	explicit Spread(const std::vector<uint32_t> &weights)
	    : weights_(weights.begin(), weights.end()), served_(weights.size())
	{
	}

	/* Index of the node for the next bytes: one that has_room(index), else the first choice. */
	template <typename HasRoom> size_t next(uint64_t bytes, HasRoom has_room)
	{
		size_t best = served_.size(), any = 0;
		for (size_t i = 0; i < served_.size(); i++) {
			if (served_[i] < served_[any])
				any = i;
			if (has_room(i) && (best == served_.size() || served_[i] < served_[best]))
				best = i;
		}
		if (best == served_.size())
			best = any;
		for (double &served : served_)
			served = std::max(served, served_[best]);
		served_[best] += static_cast<double>(bytes) / weights_[best];
		return best;
	}

private:
	std::vector<double> weights_;
	std::vector<double> served_; /* bytes for each weight */
};

} // namespace cxlkv
