/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/extents.h"

#include <algorithm>

namespace cxlkv {

void coalesce(Action action, std::vector<Pick> picks, const ExtentLimits &limits,
	      std::vector<Order> &orders)
{
	std::sort(picks.begin(), picks.end(),
		  [](const Pick &a, const Pick &b) { return a.block < b.block; });
	struct Ranked {
		Extent extent;
		float rank;
	};
	std::vector<Ranked> extents;
	for (const Pick &pick : picks) {
		Extent *last = extents.empty() ? nullptr : &extents.back().extent;
		if (last && last->first + last->nr == pick.block && last->nr < limits.max_blocks &&
		    pick.block % limits.blocks_per_slot) {
			last->nr++;
			extents.back().rank = std::min(extents.back().rank, pick.rank);
		} else {
			extents.push_back({{pick.arena, pick.block, 1}, pick.rank});
		}
	}
	std::stable_sort(extents.begin(), extents.end(),
			 [](const Ranked &a, const Ranked &b) { return a.rank < b.rank; });
	for (const Ranked &ranked : extents)
		orders.push_back({action, ranked.extent});
}

} // namespace cxlkv
