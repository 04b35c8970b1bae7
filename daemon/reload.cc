/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "reload.h"

#include "base/log.h"
#include "policy_thread.h"
#include "registry.h"
#include "sys/mover.h"
#include "tiers.h"

#include <algorithm>
#include <systemd/sd-daemon.h>

namespace cxlkv {

PolicyThreadOptions policy_thread_options(const Options &options, const Tiers &tiers)
{
	PolicyThreadOptions out;
	out.interval_ms = options.daemon.interval_ms;
	out.hot_limit_bytes = tiers.hot_limit_bytes;
	out.warm_limit_bytes = tiers.warm_limit_bytes;
	out.high_permil = options.hot.high_permil;
	out.low_permil = options.hot.low_permil;
	out.max_spill_bytes = std::max<uint64_t>(tiers.hot_limit_bytes / 8, 1 << 20);
	out.move_MBps = options.mover.max_MBps;
	out.sample_interval_ms = options.sampling.interval_ms;
	return out;
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

void reload(const Reloadable &daemon)
{
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
		   static_cast<unsigned long long>(monotonic_ns() / 1000));
	auto wanted = load_options(daemon.source.file, daemon.source.may_be_absent);
	if (!wanted) {
		log_error("{}; nothing was changed", wanted.error().what);
	} else {
		auto changes = apply_live(daemon.options, *wanted);
		set_log_level(daemon.options);
		daemon.policy.set_options(policy_thread_options(daemon.options, daemon.tiers),
					  daemon.options.policy);
		daemon.mover.set_limit(uint64_t{daemon.options.mover.max_MBps} * 1000000);
		daemon.registry.set_sampling(sampling_of(daemon.options));
		for (const OptionChange &change : changes)
			if (change.live)
				log_info("{} is {} now, was {}", change.key, change.after,
					 change.before);
			else
				log_warning("{} stays {}: {} takes a restart", change.key,
					    change.before, change.after);
		log_info("configuration read again: {} changed", changes.size());
	}
	sd_notify(0, "READY=1");
}

} // namespace cxlkv
