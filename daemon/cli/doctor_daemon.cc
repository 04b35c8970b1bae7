/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/doctor.h"

#include "cli/control_client.h"
#include "cli/units.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

using nlohmann::json;

/* cgroup v2's folder of a process; "" where it is not to be seen. */
std::string cgroup_of(const Host &host, uint64_t pid)
{
	for (const std::string &line : host.lines(fmt::format("/proc/{}/cgroup", pid)))
		if (line.rfind("0::", 0) == 0)
			return "/sys/fs/cgroup" + line.substr(3);
	return "";
}

/* A process with this capability locks as much as it likes, whatever its limit. */
bool may_lock(const Host &host, uint64_t pid)
{
	constexpr unsigned cap_ipc_lock = 14;

	for (const std::string &line : host.lines(fmt::format("/proc/{}/status", pid)))
		if (line.rfind("CapEff:", 0) == 0)
			return strtoull(line.c_str() + strlen("CapEff:"), nullptr, 16) >>
				       cap_ipc_lock &
			       1;
	return false;
}

void examine_memlock(const Host &host, uint64_t pid, Findings &out)
{
	bool may = may_lock(host, pid);

	for (const std::string &line : host.lines(fmt::format("/proc/{}/limits", pid)))
		if (line.rfind("Max locked memory", 0) == 0)
			may = may || line.find("unlimited") != std::string::npos;
	if (may)
		out.push_back(
			{Finding::Good, "memlock", "cxl-kvd may lock all of the KV memory", ""});
	else
		out.push_back({Finding::Warn, "memlock",
			       "cxl-kvd may lock only a part of the KV memory",
			       "CAP_IPC_LOCK and LimitMEMLOCK=infinity, as in its unit"});
}

/* The limit that is reached first, of the cgroup's and of those above it. */
void examine_cgroup_memory(const Host &host, const std::string &whose, std::string cgroup,
			   Findings &out)
{
	for (; cgroup.size() > strlen("/sys/fs/cgroup"); cgroup.erase(cgroup.find_last_of('/'))) {
		auto max = host.number(cgroup + "/memory.max"),
		     now = host.number(cgroup + "/memory.current");
		if (!max || !now || *max >= *now + *max / 10)
			continue;
		out.push_back({Finding::Warn, "cgroup",
			       fmt::format("{} has used {} of the {} of {}", whose,
					   human_bytes(*now), human_bytes(*max), cgroup),
			       "raise its memory.max: a restored block is charged to its engine, "
			       "which may be killed for it"});
		return;
	}
}

/* Memory that a process may not have pages on can't take its blocks. */
void examine_cgroup_nodes(const Host &host, const std::string &whose, const std::string &cgroup,
			  const json &status, Findings &out)
{
	std::vector<int> allowed = id_list(host.line(cgroup + "/cpuset.mems.effective"));
	json wanted = status.value(json::json_pointer("/tiers/warm/nodes"), json::array());

	for (const json &node : wanted)
		if (!allowed.empty() && node.is_number_integer() &&
		    std::ranges::find(allowed, node.get<int>()) == allowed.end()) {
			out.push_back(
				{Finding::Warn, "cgroup",
				 fmt::format("{} may not use warm node {}", whose, node.get<int>()),
				 "add the node to cpuset.mems of " + cgroup +
					 " (Kubernetes: the static memory manager, or none)"});
			return;
		}
}

void examine_cgroup(const Host &host, const std::string &whose, uint64_t pid, const json &status,
		    Findings &out)
{
	std::string cgroup = cgroup_of(host, pid);
	if (cgroup.empty())
		return;
	examine_cgroup_memory(host, whose, cgroup, out);
	if (status.is_object())
		examine_cgroup_nodes(host, whose, cgroup, status, out);
}

/* Of an engine: the daemon's own filter is its unit's. */
void examine_seccomp(const Host &host, const std::string &whose, uint64_t pid, Findings &out)
{
	for (const std::string &line : host.lines(fmt::format("/proc/{}/status", pid)))
		if (line == "Seccomp:\t2")
			out.push_back({Finding::Note, "seccomp",
				       whose + " runs under a seccomp filter",
				       "nothing, while it works; else let userfaultfd's ioctls, "
				       "memfd_create, mbind and madvise through"});
}

/* What the daemon itself found when it loaded its programs. */
void examine_bpf(const json &status, Findings &out)
{
	std::string why = text_at(status, "/sampling/not_used/bpf");
	/* No failure: off, or auto without the module. */
	if (!why.empty() && !status.value(json::json_pointer("/sampling/wanted"), true))
		out.push_back({Finding::Note, "BPF", "page accesses are not sampled: " + why,
			       "nothing, where the engine gives hints; else [sampling] source = "
			       "\"auto\", load the module and restart cxl-kvd"});
	else if (!why.empty())
		out.push_back({Finding::Warn, "BPF", "page accesses are not sampled: " + why,
			       "CAP_BPF and CAP_PERFMON, and the folder /sys/fs/bpf/cxl_kv "
			       "(systemd-tmpfiles --create cxl-kv.conf); or [sampling] source = "
			       "\"off\" where hints are enough"});
}

} // namespace

void examine_daemon(const Host &host, const json &status, const json &list, Findings &out)
{
	uint64_t pid = number_at(status, "/pid");

	out.push_back({Finding::Good, "daemon",
		       fmt::format("cxl-kvd {}, pid {}, {} mode", text_at(status, "/version"), pid,
				   text_at(status, "/mode")),
		       ""});
	examine_memlock(host, pid, out);
	examine_cgroup(host, "cxl-kvd", pid, status, out);
	examine_bpf(status, out);
	if (list.contains("arenas") && list["arenas"].is_array())
		for (const json &arena : list["arenas"]) {
			uint64_t engine = number_at(arena, "/pid");
			std::string whose = fmt::format("{} (pid {})",
							printable(text_at(arena, "/name")), engine);
			examine_cgroup(host, whose, engine, status, out);
			examine_seccomp(host, whose, engine, out);
		}
	if (uint64_t bad = number_at(status, "/store/checksum_failures") +
			   number_at(status, "/store/io_errors"))
		out.push_back({Finding::Warn, "spill store",
			       fmt::format("{} checksum failures and I/O errors since the start",
					   human_count(bad)),
			       "look at the drive (smartctl, nvme smart-log, dmesg); the blocks "
			       "were misses, not wrong bytes"});
}

} // namespace cxlkv
