/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What stands in the way of tiering on this host, and when tiering cannot help.
 * Every finding that is not good says what to do. docs/troubleshooting.md has a
 * paragraph for each topic.
 */
#pragma once

#include "sys/host.h"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace cxlkv {

struct Finding {
	enum Level {
		Good,
		Note, /* works, with something that one should know */
		Warn, /* works worse than it could */
		Bad,  /* does not work */
	} level;
	std::string topic;
	std::string text;
	std::string remedy; /* empty only where Good */
};
using Findings = std::vector<Finding>;

const char *level_name(Finding::Level level);

/* doctor_kernel.cc: version, module, signing, userfaultfd, io_uring, BPF, PMU, container. */
void examine_kernel(const Host &host, Findings &out);
/* doctor_memory.cc: nodes, tiers, CXL, zones, other tierers, huge pages, swap. */
void examine_memory(const Host &host, Findings &out);
/* doctor_daemon.cc: limits of the running daemon and of its clients. */
void examine_daemon(const Host &host, const nlohmann::json &status, const nlohmann::json &list,
		    Findings &out);

/* What the user measured: the drive by `cxl-kv bench`, the engine by himself; 0 = unknown. */
struct Rates {
	double read_bytes_per_s = 0;
	double prefill_tokens_per_s = 0;
};
/* doctor_use.cc: has tiering anything to do, and does a fetch pay? */
void examine_use(const nlohmann::json &status, const nlohmann::json &list, const Rates &rates,
		 Findings &out);

/* What statfs and stat say of the spill file, or of the folder it will be in. */
struct SpillPlace {
	std::string path;
	std::string missing_folder; /* the path's, where there is none; the rest is of one above */
	long fs_type = 0;
	uint64_t free_bytes = 0;
	unsigned major = 0, minor = 0; /* of the device below it, or of itself */
	bool is_device = false;
};
/* doctor_storage.cc */
void examine_storage(const Host &host, const SpillPlace &place, uint64_t limit_bytes,
		     Findings &out);

} // namespace cxlkv
