/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/replay.h"

#include <utility>

namespace cxlkv::sim {

Hits replay(const BlockTrace &trace, Cache &cache, const std::function<void(uint64_t)> &progress)
{
	Hits hits;
	uint64_t nr_told = 0;
	auto tell = [&] {
		if (progress)
			progress(hits.nr_accesses - std::exchange(nr_told, hits.nr_accesses));
	};
	for (uint32_t i = 0; i < trace.nr_requests(); i++) {
		Request request = trace.request(i);
		for (uint32_t block : request.blocks) {
			if (!cache.contains(block))
				break;
			hits.nr_prefix_hits++;
		}
		hits.nr_block_hits += cache.serve(request);
		hits.nr_accesses += request.blocks.size();
		if (i % 256 == 0)
			tell();
	}
	tell();
	return hits;
}

} // namespace cxlkv::sim
