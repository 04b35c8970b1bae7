/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Independent jobs on all cores, and how much of the work is done. */
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

namespace cxlkv::sim {

/* Share of the work that is done, 0..1; one call at a time, from any thread. */
using Progress = std::function<void(double)>;

class Meter {
public:
	Meter(uint64_t all, const Progress &progress) : all_(all), progress_(progress) {}

	void add(uint64_t nr)
	{
		double share = static_cast<double>(done_ += nr) / static_cast<double>(all_);
		std::unique_lock lock(mutex_, std::try_to_lock);
		if (lock)
			progress_(share);
	}

private:
	std::atomic<uint64_t> done_{0};
	uint64_t all_;
	const Progress &progress_;
	std::mutex mutex_;
};

/*
 * job(0) to job(nr - 1), each once; returns when all are done. What one throws
 * (there is no memory) ends the others early and is thrown here.
 */
void run_jobs(size_t nr, const std::function<void(size_t)> &job);

} // namespace cxlkv::sim
