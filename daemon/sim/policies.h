/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The replacement policies for block traces, by name; cxl-kv-sim(1) describes them. */
#pragma once

#include "sim/cache.h"

#include <string>
#include <string_view>

namespace cxlkv::sim {

struct CacheSetup {
	const BlockTrace &trace; /* only Belady looks ahead in it */
	uint32_t capacity;       /* blocks, at least 1 */
};

struct CachePolicy {
	const char *name;
	const char *help;
	bool online; /* false: it knows the future */
	std::unique_ptr<Cache> (*make)(const CacheSetup &setup);
};

const std::vector<CachePolicy> &cache_policies();
/* nullptr where there is none of that name. */
const CachePolicy *find_cache_policy(std::string_view name);

/* One maker a family, each in its own file. */
std::unique_ptr<Cache> make_lru(const CacheSetup &setup, bool leaf_first);
std::unique_ptr<Cache> make_arc(const CacheSetup &setup, bool leaf_first);
std::unique_ptr<Cache> make_s3fifo(const CacheSetup &setup);
std::unique_ptr<Cache> make_two_queue(const CacheSetup &setup);
std::unique_ptr<Cache> make_lfu(const CacheSetup &setup);
std::unique_ptr<Cache> make_gdsf(const CacheSetup &setup);
std::unique_ptr<Cache> make_lrfu(const CacheSetup &setup, double alpha);
std::unique_ptr<Cache> make_paper(const CacheSetup &setup);
std::unique_ptr<Cache> make_belady(const CacheSetup &setup);
std::unique_ptr<Cache> make_adaptive(const CacheSetup &setup);

} // namespace cxlkv::sim
