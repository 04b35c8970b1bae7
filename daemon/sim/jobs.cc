/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/jobs.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace cxlkv::sim {

void run_jobs(size_t nr, const std::function<void(size_t)> &job)
{
	std::atomic<size_t> next{0};
	auto work = [&] {
		for (size_t i; (i = next++) < nr;)
			job(i);
	};
	size_t nr_threads = std::min<size_t>(nr, std::max(1u, std::thread::hardware_concurrency()));
	std::vector<std::jthread> threads;
	for (size_t i = 1; i < nr_threads; i++)
		threads.emplace_back(work);
	work();
}

} // namespace cxlkv::sim
