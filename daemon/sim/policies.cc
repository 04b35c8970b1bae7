/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/policies.h"

namespace cxlkv::sim {

const std::vector<CachePolicy> &cache_policies()
{
	using S = const CacheSetup &;
	static const std::vector<CachePolicy> policies = {
		{"adaptive", "the default", true, [](S s) { return make_adaptive(s); }},
		{"paper", "(1 - ema) * decay", true, [](S s) { return make_paper(s); }},
		{"lru", "least recently used", true, [](S s) { return make_lru(s, false); }},
		{"lru_leaf", "LRU, a prefix from its tail", true,
		 [](S s) { return make_lru(s, true); }},
		{"lfu", "least frequently used", true, [](S s) { return make_lfu(s); }},
		{"arc", "ARC", true, [](S s) { return make_arc(s, false); }},
		{"arc_leaf", "ARC, a prefix from its tail", true,
		 [](S s) { return make_arc(s, true); }},
		{"s3fifo", "S3-FIFO, small queue 10 %", true, [](S s) { return make_s3fifo(s); }},
		{"2q", "2Q, in-queue 25 %, ghost 50 %", true,
		 [](S s) { return make_two_queue(s); }},
		{"gdsf", "greedy dual, cost 1 + position/64", true,
		 [](S s) { return make_gdsf(s); }},
		{"lrfu:0.2", "pure EMA, half-life 3 requests", true,
		 [](S s) { return make_lrfu(s, 0.2); }},
		{"lrfu:0.01", "half-life 69 requests", true,
		 [](S s) { return make_lrfu(s, 0.01); }},
		{"lrfu:0.001", "half-life 693 requests", true,
		 [](S s) { return make_lrfu(s, 0.001); }},
		{"opt", "Belady, knows the future", false, [](S s) { return make_belady(s); }},
	};
	return policies;
}

const CachePolicy *find_cache_policy(std::string_view name)
{
	for (const CachePolicy &policy : cache_policies())
		if (name == policy.name)
			return &policy;
	return nullptr;
}

} // namespace cxlkv::sim
