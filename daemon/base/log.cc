/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <utility>

namespace cxlkv {

namespace {

std::atomic<int> log_level{static_cast<int>(Level::Info)};

/* Bytes of the character that text begins with; 0: it is no UTF-8, or a control character. */
size_t visible_bytes(std::string_view text)
{
	auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
	size_t nr = at(0) < 0x80 ? 1 : at(0) < 0xe0 ? 2 : at(0) < 0xf0 ? 3 : 4;

	if (at(0) < ' ' || at(0) == 0x7f || (nr > 1 && at(0) < 0xc2) || at(0) > 0xf4 ||
	    nr > text.size())
		return 0;
	for (size_t i = 1; i < nr; i++)
		if ((at(i) & 0xc0) != 0x80)
			return 0;
	return at(0) == 0xc2 && at(1) < 0xa0 ? 0 : nr;
}

} // namespace

void set_log_level(Level level)
{
	log_level = static_cast<int>(level);
}

void log_line(Level level, std::string_view text)
{
	static const bool journal = getenv("JOURNAL_STREAM") != nullptr;

	if (static_cast<int>(level) > log_level.load(std::memory_order_relaxed))
		return;
	std::string line = journal ? fmt::format("<{}>", static_cast<int>(level))
				   : fmt::format("{}: ", program_invocation_short_name);
	/* It may quote a file or a peer: nothing that a terminal or the journal would act on. */
	for (size_t nr; !text.empty(); text.remove_prefix(std::max<size_t>(nr, 1))) {
		nr = visible_bytes(text);
		if (nr)
			line += text.substr(0, nr);
		else
			line += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
	}
	line += '\n';
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
