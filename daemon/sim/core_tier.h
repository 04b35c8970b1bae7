/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's own policy (core/policy.h) over a hot tier of so many blocks: what
 * is missing is fetched, and what a plan orders is done at once.
 */
#pragma once

#include "core/policy.h"

#include <cstdint>
#include <vector>

namespace cxlkv::sim {

class CoreTier {
public:
	CoreTier(const Geometry &geometry, const PolicyOptions &options, uint64_t capacity_blocks);

	[[nodiscard]] bool resident(uint32_t block) const { return resident_[block]; }
	/* Time goes on, and session slot is at this token. */
	void step() { now_ms_ += step_ms; }
	void position(uint32_t slot, uint32_t token);
	void move(uint32_t first, uint32_t nr, Where where);
	/* The block is read; it is fetched where it is not there. */
	void read(uint32_t block, float mass);
	void plan();

private:
	static constexpr uint32_t block_bytes = 4096; /* any will do */
	/* A step, and as long again until its plan: no move is too fresh for it, and no refusal is
	 * remembered. */
	static constexpr uint64_t step_ms = 1000;

	Geometry geometry_;
	Policy policy_;
	uint64_t capacity_, nr_resident_ = 0, now_ms_ = step_ms;
	std::vector<bool> resident_;
};

/* What the simulator runs a preset with: the trace says what an access is. */
PolicyOptions sim_options(const char *preset);

} // namespace cxlkv::sim
