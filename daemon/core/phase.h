/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Prefill or decode, told apart by sampled reads and writes alone: prefill
 * writes about as much as it reads, decode reads the whole context for each
 * block it writes [S: decode when reads exceed writes 10 times].
 */
#pragma once

#include "core/policy.h"

#include <cstdint>

namespace cxlkv {

class PhaseDetector {
public:
	/* Blocks read and written in one sampling interval. */
	/* Decode begins at ratio reads per write, and ends below that share of it. */
	void update(uint64_t nr_reads, uint64_t nr_writes, double ratio, double hysteresis = 0.5);
	[[nodiscard]] Phase phase() const { return phase_; }

private:
	/* Sums in which an interval's weight halves with each that follows. */
	double reads_ = 0, writes_ = 0;
	Phase phase_ = Phase::Unknown;
};

} // namespace cxlkv
