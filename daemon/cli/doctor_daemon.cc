/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/doctor.h"

#include "cli/control_client.h"
#include "cli/units.h"

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

void examine_cgroup(const Host &host, const std::string &whose, uint64_t pid, Findings &out)
{
	std::string cgroup = cgroup_of(host, pid);
	if (cgroup.empty())
		return;
	auto max = host.number(cgroup + "/memory.max"),
	     now = host.number(cgroup + "/memory.current");

	if (max && now && *max < *now + *max / 10)
		out.push_back({Finding::Warn, "cgroup",
			       fmt::format("{} has used {} of its cgroup's {}", whose,
					   human_bytes(*now), human_bytes(*max)),
			       "raise memory.max: a restored block is charged to its engine, which "
			       "may be killed for it"});
}

/* Arithmetic on the daemon's counters: has it had anything to do, and could it do better elsewhere?
 */
void examine_use(const json &status, const json &list, Findings &out)
{
	uint64_t hot = number_at(status, "/tiers/hot/limit_bytes"),
		 warm = number_at(status, "/tiers/warm/limit_bytes");
	uint64_t cold = number_at(status, "/tiers/cold/limit_bytes");

	if (warm && warm < hot)
		out.push_back({Finding::Warn, "sizes",
			       "the warm tier is smaller than the hot one and only mirrors it",
			       "raise [warm] limit, or take the tier out with [warm] limit = 0"});
	if (cold < hot + warm)
		out.push_back({Finding::Warn, "sizes",
			       "the cold tier is smaller than the tiers above it",
			       "raise [cold] size"});
	if (number_at(status, "/uptime_s") > 600 && number_at(status, "/made") &&
	    !number_at(status, "/spill/spilled") && !number_at(status, "/mover/demote/moved"))
		out.push_back({Finding::Note, "use",
			       "in more than ten minutes no block had to leave the hot tier",
			       "nothing is gained here yet: serve longer contexts or more "
			       "sessions, or give the memory "
			       "to something else"});
	if (!list.contains("arenas") || !list["arenas"].is_array())
		return;
	for (const json &arena : list["arenas"])
		if (number_at(arena, "/elem_bytes") >= 2) {
			out.push_back({Finding::Note, "use",
				       fmt::format("arena {} keeps {} bytes an element",
						   number_at(arena, "/arena"),
						   number_at(arena, "/elem_bytes")),
				       "FP8 KV in the engine halves what every tier has to hold "
				       "and move, and prefix-aware "
				       "routing saves whole prefills: do both first"});
			return;
		}
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
	examine_cgroup(host, "cxl-kvd", pid, out);
	if (list.contains("arenas") && list["arenas"].is_array())
		for (const json &arena : list["arenas"])
			examine_cgroup(host,
				       fmt::format("{} (pid {})",
						   printable(text_at(arena, "/name")),
						   number_at(arena, "/pid")),
				       number_at(arena, "/pid"), out);
	if (uint64_t bad = number_at(status, "/store/checksum_failures") +
			   number_at(status, "/store/io_errors"))
		out.push_back({Finding::Warn, "spill store",
			       fmt::format("{} checksum failures and I/O errors since the start",
					   human_count(bad)),
			       "look at the drive (smartctl, nvme smart-log, dmesg); the blocks "
			       "were misses, not wrong bytes"});
	examine_use(status, list, out);
}

} // namespace cxlkv
