/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * SIGHUP: the configuration is read again and what can change while the daemon
 * runs does; the log names the rest. A configuration with an error changes nothing.
 */
#pragma once

#include "options.h"
#include "sys/kmod_device.h"

#include <nlohmann/json_fwd.hpp>

namespace cxlkv {

class LatencyThread;
class Mover;
class PolicyThread;
class Registry;
struct Tiers;
struct PolicyThreadOptions;

struct ConfigSource {
	std::string file;
	bool may_be_absent = true;
};

struct Reloadable {
	const ConfigSource &source;
	Options &options; /* as in force; changed here only */
	const Tiers &tiers;
	PolicyThread &policy;
	Mover &mover;
	LatencyThread &latency;
	Registry &registry;
};

/* On the thread that serves the control socket; tells systemd when it begins and ends. */
void reload(const Reloadable &daemon);

/*
 * Changes settings by their keys until the next reload, all or none; without any, only lists.
 * Answers {"keys": [..], "changed": [..]}, see docs/control-protocol.md.
 */
Result<nlohmann::json> tune(const Reloadable &daemon, const nlohmann::json &settings);

/* What a start and a reload take out of the options. */
PolicyThreadOptions policy_thread_options(const Options &options, const Tiers &tiers);
Tenants tenants_of(const Options &options);
KmodDevice::Sampling sampling_of(const Options &options);
void set_log_level(const Options &options);

} // namespace cxlkv
