/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/phase.h"

namespace cxlkv {

void PhaseDetector::update(uint64_t nr_reads, uint64_t nr_writes, double ratio, double hysteresis)
{
	if (nr_reads + nr_writes == 0)
		return;
	reads_ = reads_ / 2 + static_cast<double>(nr_reads);
	writes_ = writes_ / 2 + static_cast<double>(nr_writes);
	double wanted = phase_ == Phase::Decode ? ratio * hysteresis : ratio;
	phase_ = reads_ >= wanted * writes_ ? Phase::Decode : Phase::Prefill;
}

} // namespace cxlkv
