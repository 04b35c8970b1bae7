/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/log.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <utility>

namespace cxlkv {

namespace {
std::atomic<int> log_level{static_cast<int>(Level::Info)};
}

void set_log_level(Level level)
{
	log_level = static_cast<int>(level);
}

void log_line(Level level, std::string_view text)
{
	static const bool journal = getenv("JOURNAL_STREAM") != nullptr;

	if (static_cast<int>(level) > log_level.load(std::memory_order_relaxed))
		return;
	std::string line = journal ? fmt::format("<{}>{}\n", static_cast<int>(level), text)
				   : fmt::format("{}: {}\n", program_invocation_short_name, text);
	/* One write, so that lines of several threads do not mix. A failed write has nowhere to go.
	 */
	[[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

bool LogLimit::allow(uint64_t *skipped)
{
	auto now = std::chrono::steady_clock::now();

	if (last_.time_since_epoch().count() && now - last_ < std::chrono::seconds(1)) {
		skipped_++;
		return false;
	}
	*skipped = std::exchange(skipped_, 0);
	last_ = now;
	return true;
}

} // namespace cxlkv
