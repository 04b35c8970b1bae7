/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/doctor.h"

#include "cli/units.h"
#include "sys/rivals.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace cxlkv {

namespace {

const std::string nodes_folder = "/sys/devices/system/node/";

struct Nodes {
	std::vector<int> fast; /* with CPUs */
	std::vector<int> slow; /* with memory only */
};

Nodes find_nodes(const Host &host)
{
	Nodes nodes;
	std::vector<int> cpus = id_list(host.line(nodes_folder + "has_cpu"));

	for (int node : id_list(host.line(nodes_folder + "has_memory")))
		(std::ranges::find(cpus, node) != cpus.end() ? nodes.fast : nodes.slow)
			.push_back(node);
	return nodes;
}

void examine_nodes(const Nodes &nodes, Findings &out)
{
	if (nodes.slow.empty())
		out.push_back({Finding::Note, "nodes",
			       "no node without CPUs: there is no warm tier",
			       "nothing, where this host has no CXL memory; else see CXL "
			       "below. Hot and cold work without it"});
	else
		out.push_back({Finding::Good, "nodes",
			       fmt::format("hot {}, warm {}", fmt::join(nodes.fast, ","),
					   fmt::join(nodes.slow, ",")),
			       ""});
}

void examine_tiers(const Host &host, const Nodes &nodes, Findings &out)
{
	const std::string folder = "/sys/devices/virtual/memory_tiering/";
	std::map<int, std::string> tier_of;

	if (nodes.slow.empty())
		return;
	for (const std::string &tier : host.names(folder))
		for (int node : id_list(host.line(folder + tier + "/nodelist")))
			tier_of[node] = tier;
	for (int slow : nodes.slow)
		for (int fast : nodes.fast)
			if (tier_of.contains(slow) && tier_of[slow] == tier_of[fast]) {
				out.push_back(
					{Finding::Note, "tiers",
					 fmt::format(
						 "the kernel has nodes {} and {} in one tier, {}",
						 fast, slow, tier_of[slow]),
					 "cxl-kvd goes by its own [hot] and [warm] nodes; only "
					 "kernel demotion and "
					 "NUMA balancing go by these"});
				return;
			}
	out.push_back(
		{Finding::Good, "tiers", "the kernel's memory tiers agree with hot and warm", ""});
}

void examine_hmat(const Host &host, const Nodes &nodes, Findings &out)
{
	for (int node : nodes.slow) {
		std::string folder =
			fmt::format("{}node{}/access0/initiators/", nodes_folder, node);
		auto latency = host.number(folder + "read_latency");
		auto bandwidth = host.number(folder + "read_bandwidth");
		if (latency && bandwidth)
			out.push_back({Finding::Good, "HMAT",
				       fmt::format("node {}: {} ns, {} MB/s by the firmware", node,
						   *latency, *bandwidth),
				       ""});
		else
			out.push_back({Finding::Note, "HMAT",
				       fmt::format("the firmware says nothing of node {}", node),
				       "where it lands in the wrong memory tier, load cxl_kv with "
				       "adistance="});
	}
}

void examine_cxl(const Host &host, Findings &out)
{
	const std::string cxl = "/sys/bus/cxl/devices/", dax = "/sys/bus/dax/devices/";
	std::vector<std::string> devices = host.names(cxl);
	size_t nr_memdevs = 0, nr_regions = 0;

	for (const std::string &name : devices) {
		nr_memdevs += name.rfind("mem", 0) == 0;
		if (name.rfind("region", 0) != 0)
			continue;
		nr_regions++;
		std::string driver = host.link_name(cxl + name + "/driver");
		if (host.line(cxl + name + "/commit") != "1")
			out.push_back({Finding::Warn, "CXL", name + " is not committed",
				       "cxl enable-region " + name +
					       "; `dmesg` says why where it fails"});
		else if (driver.empty())
			out.push_back({Finding::Note, "CXL",
				       name + " is committed and no driver holds it",
				       "load cxl_kv, which takes it as a node; or bind it to "
				       "cxl_region and use daxctl"});
		else
			out.push_back({Finding::Good, "CXL", name + " is held by " + driver, ""});
	}
	if (nr_memdevs && !nr_regions)
		out.push_back({Finding::Warn, "CXL",
			       fmt::format("{} CXL memory devices and no region", nr_memdevs),
			       "cxl create-region -t ram, or let the firmware make one"});
	if (devices.empty())
		out.push_back({Finding::Note, "CXL", "no CXL device",
			       "where there should be one: enable CXL in the firmware, and "
			       "CONFIG_CXL_ACPI in the kernel"});
	for (const std::string &name : host.names(dax))
		if (host.link_name(dax + name + "/driver") == "device_dax")
			out.push_back({Finding::Warn, "CXL", name + " is a dax device, not memory",
				       "daxctl reconfigure-device --mode=system-ram " + name});
}

/* How the node's memory is online: a long-term pin acts differently on each kind. */
void examine_zones(const Host &host, int node, Findings &out)
{
	std::string folder = fmt::format("{}node{}/", nodes_folder, node);
	size_t movable = 0, kernel = 0, offline = 0;

	for (const std::string &name : host.names(folder)) {
		if (name.rfind("memory", 0) != 0 || name.size() < 7 ||
		    !isdigit(static_cast<unsigned char>(name[6])))
			continue;
		if (host.line(folder + name + "/state") != "online")
			offline++;
		else if (host.line(folder + name + "/valid_zones").rfind("Movable", 0) == 0)
			movable++;
		else
			kernel++;
	}
	if (offline)
		out.push_back(
			{Finding::Warn, "memory blocks",
			 fmt::format("node {}: {} blocks are offline", node, offline),
			 fmt::format("echo online_movable > "
				     "/sys/devices/system/node/node{}/memoryN/state for each, "
				     "or set auto_online_blocks",
				     node)});
	if (movable && !kernel)
		out.push_back({Finding::Note, "zones",
			       fmt::format("node {} is all movable: it can be removed again", node),
			       "a long-term pin (cudaHostRegister, io_uring buffers) silently "
			       "moves its pages to DRAM: "
			       "do not pin KV memory that is meant to be warm"});
	else if (kernel && !movable)
		out.push_back({Finding::Note, "zones",
			       fmt::format("node {} is all kernel memory", node),
			       "pins stay there, but their pages never move again, and the node "
			       "may refuse to be "
			       "removed"});
}

void examine_tierers(const Host &host, Findings &out)
{
	const auto rivals = find_rivals(host);

	for (const Rival &rival : rivals)
		out.push_back({Finding::Warn, "tierers", rival.what, rival.remedy});
	if (rivals.empty())
		out.push_back({Finding::Good, "tierers", "nothing else moves pages", ""});
}

void examine_huge_pages(const Host &host, Findings &out)
{
	std::string shmem = chosen(host.line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));

	if (shmem == "always" || shmem == "force")
		out.push_back({Finding::Warn, "huge pages",
			       "shared memory gets huge pages (" + shmem + ")",
			       "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled: a "
			       "block inside a huge "
			       "page spills and moves as a part of it"});
}

void examine_swap(const Host &host, Findings &out)
{
	if (host.lines("/proc/swaps").size() > 1) /* after the heading */
		out.push_back({Finding::Note, "swap",
			       "swap is on; KV memory is locked, other memory gives way to it",
			       "where engines get slow under pressure, lower [hot] and [warm] "
			       "limit, or swapoff -a"});
	else
		out.push_back({Finding::Good, "swap", "there is none", ""});
}

} // namespace

void examine_memory(const Host &host, Findings &out)
{
	Nodes nodes = find_nodes(host);

	examine_nodes(nodes, out);
	examine_tiers(host, nodes, out);
	examine_hmat(host, nodes, out);
	examine_cxl(host, out);
	for (int node : nodes.slow)
		examine_zones(host, node, out);
	examine_tierers(host, out);
	examine_huge_pages(host, out);
	examine_swap(host, out);
}

} // namespace cxlkv
