/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory-access samples of the PMU that carry addresses: AMD IBS, Intel PEBS. */
#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <cstdint>
#include <vector>

struct perf_event_attr;

namespace cxlkv {

/*
 * The perf event of one CPU. The kernel holds one that interrupts too often until
 * the next tick, and says so in the event's ring, which has nothing else in it:
 * the samples go to a BPF program.
 */
class PmuEvent {
public:
	/* Enabled. */
	static Result<PmuEvent> open(const perf_event_attr &attr, int cpu);

	[[nodiscard]] int fd() const { return fd_.get(); }
	/* How often it was held. One thread. */
	[[nodiscard]] uint64_t nr_throttled() const;

private:
	PmuEvent(Fd fd, Mapping ring) : fd_(std::move(fd)), ring_(std::move(ring)) {}

	Fd fd_;
	Mapping ring_;
	mutable uint64_t nr_throttled_ = 0; /* by the records that were read and let go */
};

/* One event for each CPU, by its number; or why there is none (in a VM usually ENOENT). */
Result<std::vector<PmuEvent>> open_memory_samples();

} // namespace cxlkv
