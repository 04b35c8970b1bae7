/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/jobs.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

namespace cxlkv::sim {

void run_jobs(size_t nr, const std::function<void(size_t)> &job)
{
	std::atomic<size_t> next{0};
	std::exception_ptr wrong;
	std::mutex mutex;
	auto work = [&] {
		try {
			for (size_t i; (i = next++) < nr;)
				job(i);
		} catch (...) {
			std::lock_guard lock(mutex);
			wrong = std::current_exception();
			next = nr;
		}
	};
	size_t nr_threads = std::min<size_t>(nr, std::max(1u, std::thread::hardware_concurrency()));
	{
		std::vector<std::jthread> threads;
		for (size_t i = 1; i < nr_threads; i++)
			threads.emplace_back(work);
		work();
	}
	if (wrong)
		std::rethrow_exception(wrong);
}

} // namespace cxlkv::sim
