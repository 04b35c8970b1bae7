/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the parts of the I/O thread account in together. Touched by that thread only, but for
 * times. */
#pragma once

#include "sys/fault_server.h"

#include <ctime>

namespace cxlkv {

inline uint64_t now_ns()
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ts.tv_nsec);
}

struct Ledger {
	FaultStats stats;
	FaultTimes times;
	uint64_t reserved_bytes = 0; /* blocks promised memory that they do not have yet */
	std::vector<Moved> moved;    /* since the loop last handed them over */

	void note_moved(uint32_t arena, uint32_t block, Where where)
	{
		if (!moved.empty()) {
			Moved &last = moved.back();
			if (last.where == where && last.extent.arena == arena &&
			    last.extent.first + last.extent.nr == block) {
				last.extent.nr++;
				return;
			}
		}
		moved.push_back({{arena, block, 1}, where});
	}
};

} // namespace cxlkv
