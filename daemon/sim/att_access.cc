/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/att_access.h"

#include "sim/att_trace.h"

#include <algorithm>
#include <charconv>

namespace cxlkv::sim {

Result<Access> Access::parse(std::string_view text)
{
	Access access;
	const char *end = text.data() + text.size();
	auto number = [&](auto &to) {
		auto [at, wrong] = std::from_chars(text.data() + 4, end, to);
		return text.size() > 4 && wrong == std::errc() && at == end;
	};
	if (text.starts_with("top:") && number(access.top) && access.top > 0)
		return access;
	if (text.starts_with("thr:") && number(access.threshold) && access.threshold >= 0 &&
	    access.threshold < 1)
		return access;
	return error(EINVAL, "top:K (K blocks) or thr:X (mass from 0 to below 1)");
}

void Access::pick(std::span<const uint8_t> row, uint32_t nr_visible,
		  std::vector<uint32_t> &blocks) const
{
	blocks.clear();
	for (uint32_t b = 0; b < nr_visible; b++)
		if (top || AttTrace::mass(row[b]) > threshold)
			blocks.push_back(b);
	if (!top || blocks.size() <= top)
		return;
	std::partial_sort(
		blocks.begin(), blocks.begin() + top, blocks.end(),
		[&](uint32_t a, uint32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
	blocks.resize(top);
}

} // namespace cxlkv::sim
