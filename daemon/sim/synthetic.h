/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Attention of many long sessions that never was: a sink, a local window, heavy
 * hitters, and topics that shift. For figures of scale, not for claims of
 * quality. Nothing of it is kept: what a head reads in a step follows from the
 * seed alone.
 */
#pragma once

#include "sim/jobs.h"
#include "sim/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cxlkv::sim {

struct Synthetic {
	uint32_t users = 16, tokens = 128 << 10, heads = 640;
	uint64_t tokens_per_block = 16;
	uint64_t steps = 16; /* decoded by each user, the last of its tokens; half are counted */
	uint64_t seed = 1;

	/* "" or what is wrong with it. */
	[[nodiscard]] std::string check() const;
};

struct SyntheticRead {
	uint32_t block;
	float mass;
};

/* No block twice. */
void synthetic_reads(const Synthetic &load, uint32_t user, uint32_t head, uint32_t token,
		     std::vector<SyntheticRead> &reads);

/* adaptive, paper and LRU, one after the other: one alone fills much memory at full size. */
SimResult run_synthetic(const Synthetic &load, const std::vector<std::string> &policies,
			const std::vector<double> &budgets, const Progress &progress);

} // namespace cxlkv::sim
