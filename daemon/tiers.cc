/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tiers.h"

#include "sys/rivals.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numa.h>

namespace cxlkv {

namespace {

std::vector<int> sysfs_nodes(const char *what)
{
	return id_list(Host().line(std::string("/sys/devices/system/node/") + what));
}

uint64_t node_bytes(const std::vector<int> &nodes)
{
	uint64_t sum = 0;

	for (int node : nodes) {
		long long bytes = numa_node_size64(node, nullptr);
		sum += bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
	}
	return sum;
}

uint64_t limit_of(const SizeSpec &spec, uint64_t all)
{
	return spec.permil ? all / 1000 * spec.permil : spec.bytes;
}

Result<> check_nodes(const char *tier, const std::vector<int> &nodes,
		     const std::vector<int> &with_memory)
{
	for (int node : nodes)
		if (std::ranges::find(with_memory, node) == with_memory.end())
			return error(EINVAL, fmt::format("{}.nodes: node {} has no memory online; "
							 "nodes with memory: {}",
							 tier, node, fmt::join(with_memory, ", ")));
	return ok();
}

/* The kernel's, since 6.9; else all the same. */
Result<std::vector<uint32_t>> weights_of(const char *tier, const std::vector<int> &given,
					 const std::vector<int> &nodes)
{
	std::vector<uint32_t> weights(given.begin(), given.end());

	if (!given.empty() && given.size() != nodes.size())
		return error(EINVAL,
			     fmt::format("{}.weights has {} entries for {} nodes: {}", tier,
					 given.size(), nodes.size(), fmt::join(nodes, ", ")));
	for (size_t i = weights.size(); i < nodes.size(); i++) {
		const uint64_t weight =
			Host().number(fmt::format("/sys/kernel/mm/mempolicy/weighted_interleave/"
						  "node{}",
						  nodes[i]))
				.value_or(1);
		weights.push_back(static_cast<uint32_t>(std::clamp<uint64_t>(weight, 1, 1000)));
	}
	return weights;
}

} // namespace

Result<Tiers> resolve_tiers(const Options &options)
{
	Tiers tiers;
	tiers.hot_nodes = options.hot.nodes;
	tiers.warm_nodes = options.warm.nodes;
	std::vector<int> memory = sysfs_nodes("has_memory"), cpus = sysfs_nodes("has_cpu");

	if (memory.empty()) /* a kernel without NUMA */
		memory = {0};
	if (auto checked = check_nodes("hot", tiers.hot_nodes, memory); !checked)
		return checked.error();
	if (auto checked = check_nodes("warm", tiers.warm_nodes, memory); !checked)
		return checked.error();
	for (int node : memory) {
		bool has_cpu = cpus.empty() || std::ranges::find(cpus, node) != cpus.end();
		auto named = [&](const std::vector<int> &nodes) {
			return std::ranges::find(nodes, node) != nodes.end();
		};
		if (has_cpu && options.hot.nodes.empty() && !named(options.warm.nodes))
			tiers.hot_nodes.push_back(node);
		if (!has_cpu && options.warm.nodes.empty() && !named(options.hot.nodes))
			tiers.warm_nodes.push_back(node);
	}
	if (tiers.hot_nodes.empty())
		return error(EINVAL, "no node is left for the hot tier; set hot.nodes");
	auto hot_weights = weights_of("hot", options.hot.weights, tiers.hot_nodes);
	auto warm_weights = weights_of("warm", options.warm.weights, tiers.warm_nodes);
	if (!hot_weights || !warm_weights)
		return (hot_weights ? warm_weights : hot_weights).error();
	tiers.hot_weights = *hot_weights;
	tiers.warm_weights = *warm_weights;
	tiers.hot_limit_bytes = limit_of(options.hot.limit, node_bytes(tiers.hot_nodes));
	if (!tiers.warm_nodes.empty())
		tiers.warm_limit_bytes = limit_of(options.warm.limit, node_bytes(tiers.warm_nodes));
	if (!tiers.warm_limit_bytes) { /* else new blocks would be made there, and fill it */
		tiers.warm_nodes.clear();
		tiers.warm_weights.clear();
	}
	if (tiers.hot_limit_bytes < 64 << 10)
		return error(EINVAL,
			     fmt::format("hot.limit comes to {} bytes; at least 64 KiB are needed",
					 tiers.hot_limit_bytes));
	return tiers;
}

std::vector<std::string> tier_warnings(const Tiers &tiers, uint64_t cold_bytes)
{
	std::vector<std::string> warnings;
	const std::string kernel_tiers = "/sys/devices/virtual/memory_tiering/";
	const Host host;

	for (const std::string &tier : host.names(kernel_tiers)) {
		std::vector<int> nodes = id_list(host.line(kernel_tiers + tier + "/nodelist"));
		auto holds_one_of = [&](const std::vector<int> &ours) {
			return std::ranges::find_first_of(nodes, ours) != nodes.end();
		};
		if (holds_one_of(tiers.hot_nodes) && holds_one_of(tiers.warm_nodes))
			warnings.push_back(fmt::format("the kernel has nodes {} in one tier ({}), "
						       "we do not; ours count here",
						       fmt::join(nodes, ", "), tier));
	}
	for (const Rival &rival : find_rivals(host))
		warnings.push_back(rival.what + ": " + rival.remedy);
	if (tiers.warm_limit_bytes && tiers.warm_limit_bytes < tiers.hot_limit_bytes)
		warnings.push_back(
			"the warm tier is smaller than the hot one: it will mostly mirror it");
	if (cold_bytes < tiers.hot_limit_bytes + tiers.warm_limit_bytes)
		warnings.push_back("the cold tier is smaller than hot and warm together: sessions "
				   "will churn through it; raise cold.size");
	return warnings;
}

} // namespace cxlkv
