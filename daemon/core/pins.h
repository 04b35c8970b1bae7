/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pins with a lifetime: which ranges to set back to the default priority, and when. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cxlkv {

class TimedPins {
public:
	struct Range {
		uint32_t first, nr;
	};

	/*
	 * A pin of blocks first..first+nr-1 replaces what was said of them before.
	 * expires_ms 0: it holds until changed and is not remembered. More than
	 * max_pins ranges: the one that ends first is returned, ended early.
	 */
	std::vector<Range> set(uint32_t first, uint32_t nr, uint64_t expires_ms);

	/* Removes and returns what has ended. */
	std::vector<Range> expired(uint64_t now_ms);

	static constexpr size_t max_pins = 4096; /* an arena; a client can fill it, not memory */

private:
	struct Pin {
		uint32_t nr;
		uint64_t expires_ms;
	};
	std::map<uint32_t, Pin> pins_; /* by first block, disjoint */
};

} // namespace cxlkv
