/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/pins.h"

#include <algorithm>

namespace cxlkv {

std::vector<TimedPins::Range> TimedPins::set(uint32_t first, uint32_t nr, uint64_t expires_ms)
{
	uint32_t end = first + nr;
	auto it = pins_.lower_bound(first);
	if (it != pins_.begin() && std::prev(it)->first + std::prev(it)->second.nr > first)
		--it;
	while (it != pins_.end() && it->first < end) {
		uint32_t old_first = it->first;
		Pin old = it->second;
		it = pins_.erase(it);
		if (old_first < first)
			pins_[old_first] = {first - old_first, old.expires_ms};
		if (old_first + old.nr > end)
			it = pins_.insert({end, {old_first + old.nr - end, old.expires_ms}}).first;
	}
	if (expires_ms)
		pins_[first] = {nr, expires_ms};

	std::vector<Range> early;
	while (pins_.size() > max_pins) {
		auto soonest = std::min_element(
			pins_.begin(), pins_.end(), [](const auto &a, const auto &b) {
				return a.second.expires_ms < b.second.expires_ms;
			});
		early.push_back({soonest->first, soonest->second.nr});
		pins_.erase(soonest);
	}
	return early;
}

std::vector<TimedPins::Range> TimedPins::expired(uint64_t now_ms)
{
	std::vector<Range> ended;
	for (auto it = pins_.begin(); it != pins_.end();) {
		if (it->second.expires_ms > now_ms) {
			++it;
			continue;
		}
		ended.push_back({it->first, it->second.nr});
		it = pins_.erase(it);
	}
	return ended;
}

} // namespace cxlkv
