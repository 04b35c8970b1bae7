/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tiers.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <numa.h>

namespace cxlkv {

namespace {

namespace fs = std::filesystem;

std::string read_line(const fs::path &path)
{
	std::ifstream in(path);
	std::string line;
	std::getline(in, line);
	return line;
}

/* "0-2,4" of sysfs. */
std::vector<int> parse_node_list(const std::string &text)
{
	std::vector<int> nodes;
	bitmask *mask = text.empty() ? nullptr : numa_parse_nodestring_all(text.c_str());

	if (!mask)
		return nodes;
	for (unsigned node = 0; node < mask->size; node++)
		if (numa_bitmask_isbitset(mask, node))
			nodes.push_back(static_cast<int>(node));
	numa_bitmask_free(mask);
	return nodes;
}

std::vector<int> sysfs_nodes(const char *what)
{
	return parse_node_list(read_line(fs::path("/sys/devices/system/node") / what));
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
		std::string line = read_line(fmt::format(
			"/sys/kernel/mm/mempolicy/weighted_interleave/node{}", nodes[i]));
		int weight = line.empty() ? 1 : atoi(line.c_str());
		weights.push_back(static_cast<uint32_t>(std::clamp(weight, 1, 1000)));
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
	std::error_code ec;

	for (auto &entry : fs::directory_iterator("/sys/devices/virtual/memory_tiering", ec)) {
		std::vector<int> nodes = parse_node_list(read_line(entry.path() / "nodelist"));
		auto holds_one_of = [&](const std::vector<int> &ours) {
			return std::ranges::find_first_of(nodes, ours) != nodes.end();
		};
		if (holds_one_of(tiers.hot_nodes) && holds_one_of(tiers.warm_nodes))
			warnings.push_back(fmt::format("the kernel has nodes {} in one tier ({}), "
						       "we do not; ours count here",
						       fmt::join(nodes, ", "),
						       entry.path().filename().string()));
	}
	std::string balancing = read_line("/proc/sys/kernel/numa_balancing");
	if (!balancing.empty() && balancing != "0")
		warnings.push_back(fmt::format(
			"kernel.numa_balancing is {}: the kernel may move pages too", balancing));
	if (read_line("/sys/kernel/mm/numa/demotion_enabled") == "true")
		warnings.push_back("kernel demotion is on (/sys/kernel/mm/numa/demotion_enabled)");
	for (auto &entry : fs::directory_iterator("/sys/kernel/mm/damon/admin/kdamonds", ec))
		if (read_line(entry.path() / "state") == "on")
			warnings.push_back("a DAMON thread runs and may move pages too: " +
					   entry.path().string());
	if (tiers.warm_limit_bytes && tiers.warm_limit_bytes < tiers.hot_limit_bytes)
		warnings.push_back(
			"the warm tier is smaller than the hot one: it will mostly mirror it");
	if (cold_bytes < tiers.hot_limit_bytes + tiers.warm_limit_bytes)
		warnings.push_back("the cold tier is smaller than hot and warm together: sessions "
				   "will churn through it; raise cold.size");
	return warnings;
}

} // namespace cxlkv
