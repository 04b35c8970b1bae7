/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lib/eventually.h"

#include <thread>

namespace cxlkv::test {

bool eventually(const std::function<bool()> &condition, std::chrono::milliseconds deadline)
{
	auto end = std::chrono::steady_clock::now() + deadline;

	while (!condition()) {
		if (std::chrono::steady_clock::now() > end)
			return false;
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	return true;
}

} // namespace cxlkv::test
