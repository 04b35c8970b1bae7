/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/units.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <span>
#include <sstream>

namespace cxlkv {

namespace {

/* Three significant digits and the unit that keeps the number below `factor`. */
std::string scaled(double value, double factor, std::span<const char *const> units)
{
	size_t unit = 0;

	/* 999.5 would print as 1000: step up before rounding does. */
	while (unit + 1 < units.size() && value >= (factor == 1000 ? 999.5 : 1023.5)) {
		value /= factor;
		unit++;
	}
	int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
	return fmt::format("{:.{}f}{}{}", value, decimals, *units[unit] ? " " : "", units[unit]);
}

} // namespace

std::string human_bytes(uint64_t bytes)
{
	static constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	return scaled(static_cast<double>(bytes), 1024, units);
}

std::string human_rate(double bytes_per_s)
{
	static constexpr std::array units = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
	return scaled(std::max(bytes_per_s, 0.0), 1000, units);
}

std::string human_ns(uint64_t ns)
{
	static constexpr std::array units = {"ns", "µs", "ms", "s"};
	return scaled(static_cast<double>(ns), 1000, units);
}

std::string human_duration(uint64_t seconds)
{
	if (seconds < 60)
		return fmt::format("{} s", seconds);
	if (seconds < 3600)
		return fmt::format("{} min {} s", seconds / 60, seconds % 60);
	if (seconds < 86400)
		return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
	return fmt::format("{} d {} h", seconds / 86400, seconds / 3600 % 24);
}

std::string human_count(uint64_t count)
{
	static constexpr std::array units = {"", "k", "M", "G", "T", "P"};
	return count < 1000000 ? std::to_string(count)
			       : scaled(static_cast<double>(count), 1000, units);
}

std::string human_share(uint64_t part, uint64_t whole)
{
	if (!whole)
		return "-";
	return fmt::format("{:.0f} %",
			   100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string printable(const std::string &text)
{
	std::string out = text;
	std::ranges::replace_if(
		out, [](char c) { return c < ' ' || c > '~'; }, '?');
	return out;
}

size_t columns(const std::string &text)
{
	return static_cast<size_t>(
		std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string left(const std::string &text, size_t width)
{
	return text + std::string(width - std::min(width, columns(text)), ' ');
}

std::string right(const std::string &text, size_t width)
{
	return std::string(width - std::min(width, columns(text)), ' ') + text;
}

std::string wrap(const std::string &text, size_t width, size_t indent)
{
	std::string out;
	size_t used = 0;
	std::istringstream words(text);

	for (std::string word; words >> word; used += columns(word)) {
		if (used && used + 1 + columns(word) > width) {
			out += "\n" + std::string(indent, ' ');
			used = 0;
		} else if (used) {
			out += ' ';
			used++;
		}
		out += word;
	}
	return out + "\n";
}

} // namespace cxlkv
