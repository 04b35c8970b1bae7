/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Log lines to stderr with the journal's priority prefix ("<4>text"), which
 * systemd strips and a terminal never sees: without JOURNAL_STREAM plain text
 * is written. LogLimit keeps a repeated complaint to one line a second.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <string_view>

namespace cxlkv {

enum class Level { Error = 3, Warning = 4, Info = 6, Debug = 7 };

void set_log_level(Level level);
/* What is no printable UTF-8 in the text is written as \xNN. */
void log_line(Level level, std::string_view text);

template <typename... Args> void log_error(fmt::format_string<Args...> f, Args &&...args)
{
	log_line(Level::Error, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args> void log_warning(fmt::format_string<Args...> f, Args &&...args)
{
	log_line(Level::Warning, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args> void log_info(fmt::format_string<Args...> f, Args &&...args)
{
	log_line(Level::Info, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args> void log_debug(fmt::format_string<Args...> f, Args &&...args)
{
	log_line(Level::Debug, fmt::format(f, std::forward<Args>(args)...));
}

/* State of one rate-limited call site; keep it as a member, not as a global. */
class LogLimit {
public:
	/* True when a line may be written now; *skipped says how many were not. */
	bool allow(uint64_t *skipped);

private:
	std::chrono::steady_clock::time_point last_{};
	uint64_t skipped_ = 0;
};

} // namespace cxlkv
