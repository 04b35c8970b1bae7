/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The answer to `status`: one JSON object about the whole daemon (cxl-kv-status(1) names the
 * fields). */
#pragma once

#include "arena_table.h"
#include "bandwidths.h"
#include "latency_thread.h"
#include "object_thread.h"
#include "options.h"
#include "policy_thread.h"
#include "sys/fault_server.h"
#include "sys/mover.h"
#include "sys/sampler.h"
#include "tiers.h"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace cxlkv {

class Control;

struct StatusSources {
	const Options &options;
	const Tiers &tiers;
	const ArenaTable &arenas;
	const FaultServer &faults;
	const PolicyThread &policy;
	const Mover &mover;
	const LatencyThread &latency;
	const Sampler &sampler;
	const Control &control;
	const ObjectThread &objects;
	const Bandwidths &bandwidths;
	const Tenants &tenants;
	const std::vector<std::string> &warnings;
	const char *mode; /* native or module */
	uint64_t start_ns;
};

/* The part about keyed objects. */
nlohmann::json stats_json(const ObjectStats &stats, uint32_t chunk_bytes);
/* What a client should know of its manager; also a part of the status. */
nlohmann::json health_json(const StatusSources &sources);
nlohmann::json status_json(const StatusSources &sources);

} // namespace cxlkv
