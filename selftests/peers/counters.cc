/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "peers/counters.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>

namespace cxlkv::peers {

namespace {

namespace fs = std::filesystem;

const std::string event = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/";

bool write_trigger(const std::string &text)
{
	std::ofstream out(event + "trigger");
	out << text << std::flush;
	return out.good();
}

} // namespace

std::map<std::string, uint64_t> vmstat()
{
	std::map<std::string, uint64_t> all;
	std::ifstream in("/proc/vmstat");
	std::string name;
	uint64_t value = 0;

	while (in >> name >> value)
		all[name] = value;
	return all;
}

/* Not /proc/stat: it counts by ticks, of which an emulator on a busy host loses many. */
double others_seconds()
{
	const std::string self = std::to_string(gettid());
	std::error_code ec;
	uint64_t sum = 0;

	for (const auto &process : fs::directory_iterator("/proc", ec)) {
		const std::string name = process.path().filename();
		if (name.find_first_not_of("0123456789") != name.npos)
			continue;
		for (const auto &task : fs::directory_iterator(process.path() / "task", ec)) {
			uint64_t ns = 0;
			if (task.path().filename() != self &&
			    std::ifstream(task.path() / "schedstat") >> ns)
				sum += ns;
		}
	}
	return static_cast<double>(sum) / 1e9;
}

Syscalls::Syscalls() : trigger_(fmt::format("hist:keys=common_cpu if common_pid != {}", gettid()))
{
	counts_ = write_trigger(trigger_);
}

Syscalls::~Syscalls()
{
	if (counts_)
		write_trigger("!" + trigger_);
}

/* "    Hits: N" of its totals. */
std::optional<uint64_t> Syscalls::count() const
{
	std::ifstream in(event + "hist");
	std::string line;

	while (counts_ && std::getline(in, line)) {
		const size_t at = line.find("Hits: ");
		if (at != std::string::npos)
			return std::stoull(line.substr(at + 6));
	}
	return {};
}

} // namespace cxlkv::peers
