/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A block trace through a cache: what was hit. */
#pragma once

#include "sim/cache.h"

#include <functional>

namespace cxlkv::sim {

struct Hits {
	uint64_t nr_accesses = 0;
	uint64_t nr_block_hits = 0;
	/* Leading resident blocks of each request, before it changes the cache: what a KV cache can
	 * use. */
	uint64_t nr_prefix_hits = 0;

	[[nodiscard]] double block_percent() const { return percent(nr_block_hits); }
	[[nodiscard]] double prefix_percent() const { return percent(nr_prefix_hits); }

private:
	[[nodiscard]] double percent(uint64_t nr) const
	{
		return nr_accesses
			       ? 100.0 * static_cast<double>(nr) / static_cast<double>(nr_accesses)
			       : 0;
	}
};

/* progress(accesses done since the last call) now and then, and at the end. */
Hits replay(const BlockTrace &trace, Cache &cache,
	    const std::function<void(uint64_t)> &progress = {});

} // namespace cxlkv::sim
