/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/rivals.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cxlkv {

namespace {

/* Actions of a scheme that put pages on another node, or out of memory. The others advise. */
constexpr const char *kMovingActions[] = {"migrate_cold", "migrate_hot", "pageout"};
constexpr const char *kDaemons[] = {"memtierd", "numad"};

/* A kdamond that only watches moves nothing. */
std::vector<std::string> moving_schemes(const Host &host, const std::string &kdamond)
{
	std::vector<std::string> actions;

	for (const std::string &context : host.names(kdamond + "/contexts")) {
		const std::string schemes = kdamond + "/contexts/" + context + "/schemes/";
		for (const std::string &scheme : host.names(schemes)) {
			std::string action = host.line(schemes + scheme + "/action");
			if (std::ranges::find(kMovingActions, action) != std::end(kMovingActions))
				actions.push_back(action);
		}
	}
	return actions;
}

void find_damon(const Host &host, std::vector<Rival> &out)
{
	static const std::string kdamonds = "/sys/kernel/mm/damon/admin/kdamonds/";

	for (const std::string &name : host.names(kdamonds)) {
		const auto actions = moving_schemes(host, kdamonds + name);
		if (host.line(kdamonds + name + "/state") == "on" && !actions.empty())
			out.push_back({fmt::format("DAMON thread {} moves pages too ({})", name,
						   fmt::join(actions, ", ")),
				       fmt::format("echo off > {}{}/state, or take these schemes "
						   "off KV memory",
						   kdamonds, name)});
	}
	for (const char *module : {"damon_lru_sort", "damon_reclaim"}) {
		const std::string enabled =
			fmt::format("/sys/module/{}/parameters/enabled", module);
		if (host.line(enabled) == "Y")
			out.push_back({fmt::format("{} picks pages for reclaim", module),
				       fmt::format("echo N > {}", enabled)});
	}
}

} // namespace

std::vector<Rival> find_rivals(const Host &host)
{
	std::vector<Rival> out;
	std::string balancing = host.line("/proc/sys/kernel/numa_balancing");

	if (!balancing.empty() && balancing != "0")
		out.push_back({fmt::format("NUMA balancing moves pages too ({})", balancing),
			       "sysctl kernel.numa_balancing=0"});
	if (host.line("/sys/kernel/mm/numa/demotion_enabled") == "true")
		out.push_back({"kernel demotion moves pages too",
			       "echo 0 > /sys/kernel/mm/numa/demotion_enabled"});
	find_damon(host, out);
	for (const std::string &pid : host.names("/proc")) {
		const std::string name = host.line("/proc/" + pid + "/comm");
		if (std::ranges::find(kDaemons, name) != std::end(kDaemons))
			out.push_back({fmt::format("{} (pid {}) moves pages too", name, pid),
				       "stop it, or keep it off the processes that hold KV "
				       "memory"});
	}
	return out;
}

} // namespace cxlkv
