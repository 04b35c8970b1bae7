/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "status.h"

#include "control.h"
#include "registry.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace cxlkv {

using nlohmann::json;

namespace {

struct TierCount {
	uint64_t blocks = 0, bytes = 0;

	void add(uint64_t more_bytes, uint32_t block_bytes)
	{
		bytes += more_bytes;
		blocks += more_bytes / block_bytes;
	}
	[[nodiscard]] json show(json more) const
	{
		more["blocks"] = blocks;
		more["bytes"] = bytes;
		return more;
	}
};

json show(const MoveCounters &counters)
{
	const Moves moves = counters.read();

	return {{"attempted", moves.attempted},
		{"moved", moves.moved},
		{"failed", moves.failed},
		{"skipped", moves.skipped},
		{"bytes", moves.bytes}};
}

/* [ns, how many took at most that]...; the last one is all of them. */
json show(const Histogram &histogram)
{
	json at_most = json::array();

	for (uint64_t decade = 10000; decade <= 10000000000; decade *= 10)
		for (uint64_t ns : {decade, decade * 5 / 2, decade * 5})
			at_most.push_back({ns, histogram.nr_at_most(ns)});
	return {{"at_most_ns", at_most}, {"count", histogram.count()}, {"sum_ns", histogram.sum()}};
}

/* Which source delivers, what it delivered, and why the better ones do not. */
json show(const Sampler &sampler, const PolicyThread &policy)
{
	cxl_kv_bpf_totals sum = sampler.totals();
	json why = json::object(), by_cpu = json::array(), intervals = json::array();

	for (const auto &[source, reason] : sampler.why())
		why[source] = reason;
	std::vector<uint64_t> throttled = sampler.throttled_by_cpu();
	const auto cpus = sampler.totals_by_cpu();
	throttled.resize(cpus.size());
	for (size_t i = 0; i < cpus.size(); i++)
		by_cpu.push_back({{"events", cpus[i].events[CXL_KV_BPF_MODULE] +
						     cpus[i].events[CXL_KV_BPF_PMU]},
				  {"lost", cpus[i].lost},
				  {"throttled", throttled[i]}});
	for (auto [arena, ms] : policy.sample_intervals_ms())
		intervals.push_back({{"arena", arena}, {"ms", ms}});
	return {{"source", sampler.source()},
		{"wanted", sampler.wanted()},
		{"not_used", why},
		{"module_events", sum.events[CXL_KV_BPF_MODULE]},
		{"pmu_events", sum.events[CXL_KV_BPF_PMU]},
		{"lost", sum.lost},
		{"client_faults", sum.faults},
		{"host_migrated_pages", sum.migrated_pages},
		{"intervals", intervals},
		{"by_cpu", by_cpu}};
}

json show(const Bandwidths &bandwidths)
{
	json out;

	for (auto [name, way] : {std::pair{"warm_to_hot", Bandwidths::WarmToHot},
				 {"from_cold", Bandwidths::FromCold},
				 {"to_cold", Bandwidths::ToCold}})
		out[name] = {{"MBps", bandwidths.MBps(way)},
			     {"transfers", bandwidths.nr_transfers(way)}};
	return out;
}

json show(const LatencyThread::State &gate)
{
	json nodes = json::array();

	for (const LatencyGate::Node &node : gate.nodes)
		nodes.push_back({{"node", node.node}, {"ns", node.ns}, {"open", node.open}});
	return {{"on", gate.on},
		{"nodes", nodes},
		{"closed", gate.nr_closed},
		{"measured", gate.nr_measured}};
}

json show(const SessionStats &c)
{
	auto nr = [&](SessionLife::State state) {
		return c.nr_by_state[static_cast<size_t>(state)];
	};

	return {{"active", nr(SessionLife::State::Active)},
		{"idle", nr(SessionLife::State::Idle)},
		{"parked_warm", nr(SessionLife::State::ParkedWarm)},
		{"parked_cold", nr(SessionLife::State::ParkedCold)},
		{"dropped", nr(SessionLife::State::Dropped)},
		{"nr_dropped", c.nr_dropped},
		{"active_evicted_blocks", c.nr_active_evicted_blocks}};
}

/* A quota that there is not is null. */
json show_tenants(const StatusSources &s)
{
	json out = json::array();
	const auto objects = s.objects.stats().tenants;
	auto quota = [](uint64_t bytes) { return bytes == no_quota ? json() : json(bytes); };

	for (const Tenant &tenant : s.tenants.table()) {
		const auto &did = objects.at(out.size());
		const auto &verdicts = s.control.nr_verdicts.at(out.size());
		out.push_back({{"name", tenant.name},
			       {"hot", {{"bytes", 0}, {"quota_bytes", quota(tenant.quota.hot)}}},
			       {"warm", {{"bytes", 0}, {"quota_bytes", quota(tenant.quota.warm)}}},
			       {"cold", {{"bytes", 0}, {"quota_bytes", quota(tenant.quota.cold)}}},
			       {"objects",
				{{"hits", did.nr_hits},
				 {"misses", did.nr_lookups - did.nr_hits},
				 {"stored", did.nr_stored},
				 {"loaded", did.nr_loaded}}},
			       {"decisions",
				{{"fetch", verdicts[static_cast<size_t>(Verdict::Fetch)]},
				 {"recompute", verdicts[static_cast<size_t>(Verdict::Recompute)]},
				 {"split", verdicts[static_cast<size_t>(Verdict::Split)]},
				 {"drop", verdicts[static_cast<size_t>(Verdict::Drop)]}}}});
	}
	for (const auto &entry : s.arenas.all()) {
		const Arena &arena = *entry->arena;
		json &tenant = out[arena.tenant];
		auto add = [&](const char *tier, uint64_t bytes) {
			tenant[tier]["bytes"] = tenant[tier]["bytes"].get<uint64_t>() + bytes;
		};
		add("hot", arena.bytes.hot);
		add("warm", arena.bytes.warm);
		add("cold", arena.bytes.cold);
	}
	return out;
}

/* What was done since the start, and how long it took. */
json history(const StatusSources &s, const FaultStats &f)
{
	const auto accesses = s.policy.accesses();
	return {{"spill",
		 {{"spilled", f.nr_spilled},
		  {"spilled_bytes", f.spilled_bytes},
		  {"clean", f.nr_spilled_clean},
		  {"aborted", f.nr_spill_aborted},
		  {"failed", f.nr_spill_failed},
		  {"refused", f.nr_spill_refused},
		  {"encoded", f.nr_encoded},
		  {"encoded_bytes", f.encoded_bytes},
		  {"not_encoded", f.nr_not_encoded}}},
		{"restore",
		 {{"restored", f.nr_restored},
		  {"restored_bytes", f.restored_bytes},
		  {"demand", f.nr_demand_restored},
		  {"p50_ns", f.restore_p50_ns},
		  {"p99_ns", f.restore_p99_ns},
		  {"lost", f.nr_lost},
		  {"unknown_format", f.nr_unknown_format}}},
		{"wake",
		 {{"count", s.control.wakes_ns.count()},
		  {"p50_ns", s.control.wakes_ns.permille(500)},
		  {"p99_ns", s.control.wakes_ns.permille(990)},
		  {"waiting", s.control.nr_waiting_wakes()},
		  {"busy", s.control.nr_busy.load()}}},
		{"bandwidths", show(s.bandwidths)},
		{"times",
		 {{"spill", show(s.faults.times().spill_ns)},
		  {"restore", show(s.faults.times().restore_ns)},
		  {"stall", show(s.faults.times().stall_ns)},
		  {"reuse_gap", show(s.faults.times().reuse_gap_ns)},
		  {"promote_wait", show(s.mover.promote_wait_ns)},
		  {"wake", show(s.control.wakes_ns)}}},
		{"accesses",
		 {{"hot", accesses[as_index(Where::Hot)]},
		  {"warm", accesses[as_index(Where::Warm)]},
		  {"cold", accesses[as_index(Where::Cold)]}}},
		{"faults",
		 {{"missing", f.nr_faults_missing},
		  {"wp", f.nr_faults_wp},
		  {"minor", f.nr_faults_minor}}},
		{"made", f.nr_made},
		{"dropped", f.nr_dropped},
		{"no_room", f.nr_no_room},
		{"store",
		 {{"used_bytes", f.store.used_bytes},
		  {"capacity_bytes", f.store.capacity_bytes},
		  {"records", f.store.nr_records},
		  {"given_bytes", f.store.user_bytes},
		  {"written_bytes", f.store.written_bytes},
		  {"cleaned_bytes", f.store.cleaned_bytes},
		  {"unwiped_bytes", f.store.unwiped_bytes},
		  {"read_bytes", f.store.read_bytes},
		  {"checksum_failures", f.store.nr_checksum_failures},
		  {"io_errors", f.store.nr_io_errors},
		  {"no_space", f.store.nr_no_space}}},
		{"mover",
		 {{"promote", show(s.mover.promote)},
		  {"demote", show(s.mover.demote)},
		  {"no_space", s.mover.nr_no_space.load()},
		  {"latency_gate", show(s.latency.state())}}}};
}

struct TierCounts {
	TierCount hot, warm, cold, lost;
};

TierCounts count_tiers(const ArenaTable &arenas)
{
	TierCounts sum;

	for (const auto &entry : arenas.all()) {
		const Arena &arena = *entry->arena;
		sum.hot.add(arena.bytes.hot, arena.geometry.block_bytes);
		sum.warm.add(arena.bytes.warm, arena.geometry.block_bytes);
		sum.cold.add(arena.bytes.cold, arena.geometry.block_bytes);
		sum.lost.add(arena.bytes.lost, arena.geometry.block_bytes);
	}
	return sum;
}

json health(const StatusSources &s, const FaultStats &f, const TierCounts &tiers)
{
	constexpr uint64_t recently_ns = 10'000'000'000;
	auto number = [](uint64_t value) { return std::to_string(value); };

	return {{"frozen", !s.options.daemon.enabled},
		{"draining", s.policy.draining(Where::Warm) || s.policy.draining(Where::Cold)},
		{"store_failing",
		 f.store_failed_ns && monotonic_ns() - f.store_failed_ns < recently_ns},
		{"no_objects", s.objects.stats().failed},
		{"uptime_ms", number((monotonic_ns() - s.start_ns) / 1000000)},
		{"hot_bytes", number(tiers.hot.bytes)},
		{"hot_limit_bytes", number(s.tiers.hot_limit_bytes)},
		{"warm_bytes", number(tiers.warm.bytes)},
		{"warm_limit_bytes", number(s.tiers.warm_limit_bytes)},
		{"cold_bytes", number(tiers.cold.bytes)},
		{"cold_limit_bytes", number(f.store.capacity_bytes)},
		{"store_errors", number(f.store.nr_failures())}};
}

} // namespace

json stats_json(const ObjectStats &s, uint32_t chunk_bytes)
{
	return {{"objects", s.nr_objects},
		{"pool_bytes", s.nr_chunks * chunk_bytes},
		{"pool_free_bytes", s.nr_free_chunks * chunk_bytes},
		{"clients", s.nr_clients},
		{"in_flight", s.nr_in_flight},
		{"stored", s.nr_stored},
		{"loaded", s.nr_loaded},
		{"evicted", s.nr_evicted},
		{"removed", s.nr_removed},
		{"checksum_failures", s.nr_checksum_failures},
		{"lost", s.nr_lost},
		{"timed_out", s.nr_timed_out}};
}

json health_json(const StatusSources &s)
{
	return health(s, s.faults.stats(), count_tiers(s.arenas));
}

json status_json(const StatusSources &s)
{
	const TierCounts held = count_tiers(s.arenas);
	size_t nr_arenas = 0;
	std::array<uint32_t, 3> phases{};

	for (const auto &entry : s.arenas.all()) {
		nr_arenas++;
		auto more = s.policy.phases(*entry);
		std::transform(phases.begin(), phases.end(), more.begin(), phases.begin(),
			       std::plus{});
	}
	FaultStats f = s.faults.stats();
	json status = {
		{"version", CXL_KV_VERSION},
		{"mode", s.mode},
		{"pid", getpid()},
		{"uptime_s", (monotonic_ns() - s.start_ns) / 1000000000},
		{"preset", s.options.policy.preset},
		{"arenas", nr_arenas},
		{"phases", {{"unknown", phases[0]}, {"prefill", phases[1]}, {"decode", phases[2]}}},
		{"tiers",
		 {{"hot", held.hot.show({{"limit_bytes", s.tiers.hot_limit_bytes},
					 {"nodes", s.tiers.hot_nodes}})},
		  {"warm", held.warm.show({{"limit_bytes", s.tiers.warm_limit_bytes},
					   {"nodes", s.tiers.warm_nodes}})},
		  {"cold", held.cold.show({{"limit_bytes", f.store.capacity_bytes},
					   {"path", s.options.cold.path},
					   {"more_paths", s.options.cold.more_paths}})}}},
		{"draining",
		 {{"warm", s.policy.draining(Where::Warm)},
		  {"cold", s.policy.draining(Where::Cold)}}},
		{"lost_blocks", held.lost.blocks},
		{"objects", stats_json(s.objects.stats(), s.objects.chunk_bytes())},
		{"sessions", show(s.policy.session_stats())},
		{"leases_expired", s.policy.nr_expired_leases()},
		{"tenants", show_tenants(s)},
		{"sampling", show(s.sampler, s.policy)},
		{"warnings", s.warnings},
	};
	status["health"] = health(s, f, held);
	status.update(history(s, f));
	return status;
}

} // namespace cxlkv
