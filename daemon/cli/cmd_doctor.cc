/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv doctor: examines the host and, where it runs, the daemon. Changes nothing. */
#include "base/json_from.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/doctor.h"
#include "cli/json_text.h"
#include "cli/units.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

namespace cxlkv {

namespace {

using nlohmann::json;

/* The spill file, or the nearest folder above it that exists. */
SpillPlace spill_place(const std::string &path)
{
	namespace fs = std::filesystem;
	SpillPlace place;
	fs::path at = path;
	struct stat st = {};

	place.path = path;
	std::error_code hidden; /* by a folder above it that is not ours to look into */
	if (!fs::exists(at.parent_path(), hidden) && !hidden)
		place.missing_folder = at.parent_path();
	while (stat(at.c_str(), &st) && at.has_parent_path() && at != at.parent_path())
		at = at.parent_path();
	place.is_device = S_ISBLK(st.st_mode);
	dev_t device = place.is_device ? st.st_rdev : st.st_dev;
	place.major = major(device);
	place.minor = minor(device);
	struct statfs fs_info = {};
	if (!statfs(at.c_str(), &fs_info)) {
		place.fs_type = static_cast<long>(fs_info.f_type);
		place.free_bytes = fs_info.f_bavail * static_cast<uint64_t>(fs_info.f_bsize);
		if (S_ISREG(st.st_mode)) /* the store's own bytes are free to it */
			place.free_bytes += static_cast<uint64_t>(st.st_blocks) * 512;
	}
	return place;
}

Findings examine(const std::string &spill_path, const Rates &rates)
{
	Findings findings;
	Host host;
	json status, list;
	std::string path = spill_path;
	uint64_t limit_bytes = 0;

	examine_kernel(host, findings);
	examine_memory(host, findings);
	auto got = ask_daemon({{"op", "status"}});
	if (got) {
		status = std::move(*got);
		if (auto arenas = ask_daemon({{"op", "list"}}))
			list = std::move(*arenas);
		examine_daemon(host, status, list, findings);
		path = text_at(status, "/tiers/cold/path");
		limit_bytes = number_at(status, "/tiers/cold/limit_bytes");
	} else {
		findings.push_back(
			{Finding::Warn, "daemon", "no answer: " + got.error().what,
			 service_installed(host)
				 ? "systemctl start cxl-kvd; `journalctl -u cxl-kvd` says "
				   "why where it fails"
				 : kNoService});
	}
	examine_use(status, list, rates, findings);
	examine_storage(host, spill_place(path), limit_bytes, findings);
	return findings;
}

json to_json(const Findings &findings)
{
	json out = json::array();
	for (const Finding &finding : findings)
		out.push_back({{"level",
				finding.level == Finding::Bad ? "bad" : level_name(finding.level)},
			       {"topic", finding.topic},
			       {"text", finding.text},
			       {"remedy", finding.remedy}});
	return out;
}

void print(const Finding &finding)
{
	fmt::print("{}  {} {}", left(level_name(finding.level), 4), left(finding.topic, 13),
		   wrap(finding.text, 60, 20));
	if (!finding.remedy.empty())
		fmt::print("{}-> {}", std::string(20, ' '), wrap(finding.remedy, 57, 23));
}

} // namespace

int cmd_doctor(int argc, char **argv)
{
	bool as_json = false;
	std::string spill_path = "/var/lib/cxl-kv/spill", measured;
	Rates rates;
	Args args("doctor", "Examines the host, and the daemon where one runs: what stands in the "
			    "way of tiering, and\n"
			    "what to do about it. Changes nothing. Exit status 1 when something "
			    "does not work.");
	args.text('s', "spill", "PATH", spill_path,
		  "[cold] path, where no daemon runs that says it");
	args.text('m', "measured", "FILE", measured, "what `cxl-kv bench -o` wrote of the drive");
	args.number('p', "prefill", "RATE", rates.prefill_tokens_per_s, {1, 1e9},
		    "tokens that the engine prefills a second: does a fetch pay?");
	args.flag('j', "json", as_json, "print the findings as JSON");
	if (auto exit = args.parse(argc, argv))
		return *exit;

	if (!measured.empty()) {
		auto figures = json_from_file(measured);
		if (!figures) {
			fmt::print(stderr, "cxl-kv doctor: {}\n", figures.error().what);
			return kExitFailure;
		}
		rates.read_bytes_per_s = real_at(*figures, "/cold/read_MBps") * 1e6;
		if (rates.read_bytes_per_s <= 0) {
			fmt::print(
				stderr,
				"cxl-kv doctor: {}: has no /cold/read_MBps; `cxl-kv bench -o {}` "
				"writes it\n",
				measured, measured);
			return kExitFailure;
		}
	}
	Findings findings = examine(spill_path, rates);
	if (as_json)
		fmt::print("{}\n", json_text(to_json(findings), 2));
	else
		std::ranges::for_each(findings, print);
	return std::ranges::any_of(findings,
				   [](const Finding &f) { return f.level == Finding::Bad; })
		       ? kExitFailure
		       : kExitOk;
}

} // namespace cxlkv
