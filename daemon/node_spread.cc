/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "node_spread.h"

#include <numa.h>

namespace cxlkv {

NodeSpread::NodeSpread(const Tiers &tiers, const LatencyThread &latency)
    : tiers_(tiers), latency_(latency), hot_(tiers.hot_weights), warm_(tiers.warm_weights)
{
}

int NodeSpread::next(bool up, uint64_t bytes)
{
	const std::vector<int> &nodes = up ? tiers_.hot_nodes : tiers_.warm_nodes;
	auto has_room = [&](size_t i) {
		if (up && !latency_.may_promote(nodes[i]))
			return false;
		/* A node keeps a little for itself below its watermarks. */
		long long free = 0, size = numa_node_size64(nodes[i], &free);
		return size <= 0 || free >= size / 64 + static_cast<long long>(bytes);
	};

	return nodes[(up ? hot_ : warm_).next(bytes, has_room)];
}

} // namespace cxlkv
