/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/cpuset.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <numa.h>
#include <string>

namespace cxlkv {

bool cpuset_allows(pid_t pid, const std::vector<int> &nodes)
{
	static constexpr std::string_view name = "Mems_allowed_list:\t";
	std::ifstream status(fmt::format("/proc/{}/status", pid));

	for (std::string line; std::getline(status, line);) {
		if (!line.starts_with(name))
			continue;
		std::unique_ptr<bitmask, void (*)(bitmask *)> allowed(
			numa_parse_nodestring_all(line.c_str() + name.size()), numa_bitmask_free);
		return !allowed || std::ranges::any_of(nodes, [&](int node) {
			return numa_bitmask_isbitset(allowed.get(), static_cast<unsigned>(node));
		});
	}
	return true;
}

} // namespace cxlkv
