/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "reload.h"

#include "base/log.h"
#include "latency_thread.h"
#include "policy_thread.h"
#include "registry.h"
#include "sys/mover.h"
#include "tiers.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <systemd/sd-daemon.h>

namespace cxlkv {

PolicyThreadOptions policy_thread_options(const Options &options, const Tiers &tiers)
{
	PolicyThreadOptions out;
	out.interval_ms = options.daemon.interval_ms;
	out.enabled = options.daemon.enabled;
	out.hot_limit_bytes = tiers.hot_limit_bytes;
	out.warm_limit_bytes = tiers.warm_limit_bytes;
	out.high_permil = options.hot.high_permil;
	out.low_permil = options.hot.low_permil;
	out.max_spill_bytes = std::max<uint64_t>(tiers.hot_limit_bytes / 8, 1 << 20);
	out.move_MBps = options.mover.max_MBps;
	out.sampling = sampling_of(options);
	out.min_sample_interval_ms = options.sampling.min_interval_ms
					     ? options.sampling.min_interval_ms
					     : std::max<uint32_t>(options.sampling.interval_ms / 2,
								  CXL_KV_SAMPLE_MIN_INTERVAL_MS);
	out.lease_limit_ms = options.lease_limit_ms;
	const Tenants tenants = tenants_of(options);
	for (const Tenant &tenant : tenants.table())
		out.quotas.push_back(tenant.quota);
	return out;
}

Tenants tenants_of(const Options &options)
{
	std::vector<Tenant> table = options.tenants;

	table.push_back(options.default_tenant);
	return Tenants(std::move(table));
}

KmodDevice::Sampling sampling_of(const Options &options)
{
	return {options.sampling.way == "refault" ? CXL_KV_SAMPLE_REFAULT : CXL_KV_SAMPLE_ACCESSED,
		options.sampling.interval_ms, options.sampling.cpu_permil,
		options.sampling.flush_tlb};
}

void set_log_level(const Options &options)
{
	const std::string &name = options.daemon.log_level;

	set_log_level(name == "error"     ? Level::Error
		      : name == "warning" ? Level::Warning
		      : name == "debug"   ? Level::Debug
					  : Level::Info);
}

namespace {

std::vector<OptionChange> apply(const Reloadable &daemon, const Options &wanted)
{
	auto changes = apply_live(daemon.options, wanted);

	set_log_level(daemon.options);
	daemon.policy.set_options(policy_thread_options(daemon.options, daemon.tiers),
				  daemon.options.policy);
	daemon.mover.set_limit(uint64_t{daemon.options.mover.max_MBps} * 1000000);
	daemon.latency.set_on(daemon.options.mover.latency_gate);
	daemon.registry.set_sampling(sampling_of(daemon.options));
	for (const OptionChange &change : changes)
		if (change.live)
			log_info("{} is {} now, was {}", change.key, change.after, change.before);
		else
			log_warning("{} stays {}: {} takes a restart", change.key, change.before,
				    change.after);
	return changes;
}

} // namespace

void reload(const Reloadable &daemon)
{
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
		   static_cast<unsigned long long>(monotonic_ns() / 1000));
	auto wanted = load_options(daemon.source.file, daemon.source.may_be_absent);
	if (!wanted) {
		log_error("{}; nothing was changed", wanted.error().what);
	} else {
		auto changes = apply(daemon, *wanted);
		log_info("configuration read again: {} changed", changes.size());
	}
	sd_notify(0, "READY=1");
}

Result<nlohmann::json> tune(const Reloadable &daemon, const nlohmann::json &settings)
{
	using nlohmann::json;
	std::vector<std::pair<std::string, std::string>> wanted;
	json keys = json::array(), changed = json::array();

	for (const auto &[key, value] : settings.items()) {
		if (!value.is_string())
			return error(EINVAL, key + ": values are strings, as in the environment");
		wanted.emplace_back(key, value.get<std::string>());
	}
	auto options = with_settings(daemon.options, wanted);
	if (!options)
		return options.error();
	Options trial = daemon.options;
	for (const OptionChange &change : apply_live(trial, *options))
		if (!change.live)
			return error(EPERM, fmt::format("{} takes a restart: set it in the "
							"configuration file",
							change.key));
	if (!wanted.empty())
		for (const OptionChange &change : apply(daemon, *options))
			changed.push_back({{"key", change.key},
					   {"before", change.before},
					   {"after", change.after}});
	for (const OptionValue &value : option_values(daemon.options))
		keys.push_back({{"key", value.key},
				{"value", value.value},
				{"allowed", value.allowed},
				{"live", value.live}});
	return json{{"keys", keys}, {"changed", changed}};
}

} // namespace cxlkv
