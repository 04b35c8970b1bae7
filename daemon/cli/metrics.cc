/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/metrics.h"

#include "cli/control_client.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

using nlohmann::json;

enum class Unit { One, NsToSeconds };

/* One sample: its metric, what tells it from its sisters, and where in `status` its value stands.
 */
struct Sample {
	const char *name, *labels, *pointer;
	Unit unit = Unit::One;
};

/* Samples of one metric are neighbours. */
constexpr Sample samples[] = {
	{"cxl_kv_uptime_seconds", "", "/uptime_s"},
	{"cxl_kv_arenas", "", "/arenas"},
	{"cxl_kv_tier_bytes", "tier=\"hot\"", "/tiers/hot/bytes"},
	{"cxl_kv_tier_bytes", "tier=\"warm\"", "/tiers/warm/bytes"},
	{"cxl_kv_tier_bytes", "tier=\"cold\"", "/tiers/cold/bytes"},
	{"cxl_kv_tier_limit_bytes", "tier=\"hot\"", "/tiers/hot/limit_bytes"},
	{"cxl_kv_tier_limit_bytes", "tier=\"warm\"", "/tiers/warm/limit_bytes"},
	{"cxl_kv_tier_limit_bytes", "tier=\"cold\"", "/tiers/cold/limit_bytes"},
	{"cxl_kv_tier_blocks", "tier=\"hot\"", "/tiers/hot/blocks"},
	{"cxl_kv_tier_blocks", "tier=\"warm\"", "/tiers/warm/blocks"},
	{"cxl_kv_tier_blocks", "tier=\"cold\"", "/tiers/cold/blocks"},
	{"cxl_kv_lost_blocks", "", "/lost_blocks"},
	{"cxl_kv_made_blocks_total", "", "/made"},
	{"cxl_kv_dropped_blocks_total", "", "/dropped"},
	{"cxl_kv_no_room_total", "", "/no_room"},
	{"cxl_kv_spills_total", "result=\"spilled\"", "/spill/spilled"},
	{"cxl_kv_spills_total", "result=\"clean\"", "/spill/clean"},
	{"cxl_kv_spills_total", "result=\"aborted\"", "/spill/aborted"},
	{"cxl_kv_spills_total", "result=\"failed\"", "/spill/failed"},
	{"cxl_kv_spills_total", "result=\"refused\"", "/spill/refused"},
	{"cxl_kv_spilled_bytes_total", "", "/spill/spilled_bytes"},
	{"cxl_kv_encoded_blocks_total", "result=\"encoded\"", "/spill/encoded"},
	{"cxl_kv_encoded_blocks_total", "result=\"kept\"", "/spill/not_encoded"},
	{"cxl_kv_encoded_bytes_total", "", "/spill/encoded_bytes"},
	{"cxl_kv_restores_total", "result=\"restored\"", "/restore/restored"},
	{"cxl_kv_restores_total", "result=\"demand\"", "/restore/demand"},
	{"cxl_kv_restores_total", "result=\"lost\"", "/restore/lost"},
	{"cxl_kv_restores_total", "result=\"unknown_format\"", "/restore/unknown_format"},
	{"cxl_kv_restored_bytes_total", "", "/restore/restored_bytes"},
	{"cxl_kv_restore_seconds", "percentile=\"50\"", "/restore/p50_ns", Unit::NsToSeconds},
	{"cxl_kv_restore_seconds", "percentile=\"99\"", "/restore/p99_ns", Unit::NsToSeconds},
	{"cxl_kv_sessions", "state=\"active\"", "/sessions/active"},
	{"cxl_kv_sessions", "state=\"idle\"", "/sessions/idle"},
	{"cxl_kv_sessions", "state=\"parked_warm\"", "/sessions/parked_warm"},
	{"cxl_kv_sessions", "state=\"parked_cold\"", "/sessions/parked_cold"},
	{"cxl_kv_sessions", "state=\"dropped\"", "/sessions/dropped"},
	{"cxl_kv_sessions_dropped_total", "", "/sessions/nr_dropped"},
	{"cxl_kv_active_evicted_blocks_total", "", "/sessions/active_evicted_blocks"},
	{"cxl_kv_leases_expired_total", "", "/leases_expired"},
	{"cxl_kv_busy_total", "", "/wake/busy"},
	{"cxl_kv_wakes_waiting", "", "/wake/waiting"},
	{"cxl_kv_wakes_total", "", "/wake/count"},
	{"cxl_kv_wake_seconds", "percentile=\"50\"", "/wake/p50_ns", Unit::NsToSeconds},
	{"cxl_kv_wake_seconds", "percentile=\"99\"", "/wake/p99_ns", Unit::NsToSeconds},
	{"cxl_kv_faults_total", "kind=\"missing\"", "/faults/missing"},
	{"cxl_kv_faults_total", "kind=\"write_protect\"", "/faults/wp"},
	{"cxl_kv_faults_total", "kind=\"minor\"", "/faults/minor"},
	{"cxl_kv_moves_total", "direction=\"promote\",result=\"attempted\"",
	 "/mover/promote/attempted"},
	{"cxl_kv_moves_total", "direction=\"promote\",result=\"moved\"", "/mover/promote/moved"},
	{"cxl_kv_moves_total", "direction=\"promote\",result=\"failed\"", "/mover/promote/failed"},
	{"cxl_kv_moves_total", "direction=\"promote\",result=\"skipped\"",
	 "/mover/promote/skipped"},
	{"cxl_kv_moves_total", "direction=\"demote\",result=\"attempted\"",
	 "/mover/demote/attempted"},
	{"cxl_kv_moves_total", "direction=\"demote\",result=\"moved\"", "/mover/demote/moved"},
	{"cxl_kv_moves_total", "direction=\"demote\",result=\"failed\"", "/mover/demote/failed"},
	{"cxl_kv_moves_total", "direction=\"demote\",result=\"skipped\"", "/mover/demote/skipped"},
	{"cxl_kv_moved_bytes_total", "direction=\"promote\"", "/mover/promote/bytes"},
	{"cxl_kv_moved_bytes_total", "direction=\"demote\"", "/mover/demote/bytes"},
	{"cxl_kv_moves_no_space_total", "", "/mover/no_space"},
	{"cxl_kv_store_used_bytes", "", "/store/used_bytes"},
	{"cxl_kv_store_capacity_bytes", "", "/store/capacity_bytes"},
	{"cxl_kv_store_given_bytes_total", "", "/store/given_bytes"},
	{"cxl_kv_store_written_bytes_total", "", "/store/written_bytes"},
	{"cxl_kv_store_unwiped_bytes", "", "/store/unwiped_bytes"},
	{"cxl_kv_store_errors_total", "kind=\"checksum\"", "/store/checksum_failures"},
	{"cxl_kv_store_errors_total", "kind=\"io\"", "/store/io_errors"},
	{"cxl_kv_store_errors_total", "kind=\"no_space\"", "/store/no_space"},
	{"cxl_kv_sampled_events_total", "source=\"module\"", "/sampling/module_events"},
	{"cxl_kv_sampled_events_total", "source=\"pmu\"", "/sampling/pmu_events"},
	{"cxl_kv_sampling_lost_total", "", "/sampling/lost"},
	{"cxl_kv_accesses_total", "tier=\"hot\"", "/accesses/hot"},
	{"cxl_kv_accesses_total", "tier=\"warm\"", "/accesses/warm"},
	{"cxl_kv_accesses_total", "tier=\"cold\"", "/accesses/cold"},
	{"cxl_kv_objects", "", "/objects/objects"},
	{"cxl_kv_objects_in_flight", "", "/objects/in_flight"},
	{"cxl_kv_object_pool_bytes", "", "/objects/pool_bytes"},
	{"cxl_kv_object_pool_free_bytes", "", "/objects/pool_free_bytes"},
	{"cxl_kv_objects_evicted_total", "", "/objects/evicted"},
	{"cxl_kv_objects_removed_total", "", "/objects/removed"},
	{"cxl_kv_object_errors_total", "kind=\"checksum\"", "/objects/checksum_failures"},
	{"cxl_kv_object_errors_total", "kind=\"lost\"", "/objects/lost"},
	{"cxl_kv_object_errors_total", "kind=\"timed_out\"", "/objects/timed_out"},
};

/* Histograms: where in `status` their buckets, count and sum stand. */
struct Times {
	const char *name, *pointer, *help;
};

constexpr Times times[] = {
	{"cxl_kv_spill_duration_seconds", "/times/spill",
	 "Time of a block from its copy until it was gone from memory."},
	{"cxl_kv_restore_duration_seconds", "/times/restore",
	 "Time of a block from the request or fault until it was there."},
	{"cxl_kv_stall_seconds", "/times/stall",
	 "Time of a fault until the block was there: a thread of an engine stood still."},
	{"cxl_kv_reuse_gap_seconds", "/times/reuse_gap",
	 "Time from a block's spill until it was wanted back; short ones are thrash."},
	{"cxl_kv_promotion_wait_seconds", "/times/promote_wait",
	 "Time of a block from the order to promote it until it was moved."},
	{"cxl_kv_wake_duration_seconds", "/times/wake",
	 "Time from a wake until all of the session was there."},
};

struct Meaning {
	const char *name, *help;
};

constexpr Meaning meanings[] = {
	{"cxl_kv_uptime_seconds", "Time since the daemon's start."},
	{"cxl_kv_arenas", "Arenas that are registered."},
	{"cxl_kv_tier_bytes", "KV bytes in the tier."},
	{"cxl_kv_tier_limit_bytes", "What the tier may hold."},
	{"cxl_kv_tier_blocks", "KV blocks in the tier."},
	{"cxl_kv_lost_blocks", "Blocks that could not be restored and were not made anew yet."},
	{"cxl_kv_made_blocks_total", "Blocks that clients made."},
	{"cxl_kv_dropped_blocks_total", "Blocks that were dropped."},
	{"cxl_kv_no_room_total", "Requests that found no room before their deadline."},
	{"cxl_kv_spills_total",
	 "Blocks by what became of their spill; clean ones are among the spilled."},
	{"cxl_kv_spilled_bytes_total", "Bytes spilled, as they were in memory."},
	{"cxl_kv_encoded_blocks_total", "Blocks spilled in a lossy format, or kept as they were "
					"because it could not hold them."},
	{"cxl_kv_encoded_bytes_total", "Bytes of the store that the encoded blocks took."},
	{"cxl_kv_restores_total", "Blocks by what became of their restore; demand ones, by a "
				  "fault, are among the restored, those of an unknown format "
				  "among the lost."},
	{"cxl_kv_restored_bytes_total", "Bytes restored."},
	{"cxl_kv_restore_seconds", "Time from the request or fault until a block was there."},
	{"cxl_kv_sessions", "Sessions by the stage of their life."},
	{"cxl_kv_sessions_dropped_total", "Sessions given up for their age or a quota."},
	{"cxl_kv_active_evicted_blocks_total", "Blocks that active sessions had to give."},
	{"cxl_kv_leases_expired_total", "Leases that their client held for too long."},
	{"cxl_kv_busy_total", "Sessions that were told to come again."},
	{"cxl_kv_wakes_waiting", "Sessions that wait for their turn to be woken."},
	{"cxl_kv_wakes_total", "Sessions woken."},
	{"cxl_kv_wake_seconds", "Time from a wake until all of the session was there."},
	{"cxl_kv_faults_total", "Page faults of clients that the daemon answered."},
	{"cxl_kv_moves_total",
	 "Pages by what became of their move; attempted = moved + failed + skipped."},
	{"cxl_kv_moved_bytes_total", "Bytes moved between hot and warm."},
	{"cxl_kv_moves_no_space_total", "Moves that found no space on the other node."},
	{"cxl_kv_store_used_bytes", "Bytes in the spill store."},
	{"cxl_kv_store_capacity_bytes", "What the spill store may hold."},
	{"cxl_kv_store_given_bytes_total", "Bytes of blocks that the spill store took."},
	{"cxl_kv_store_written_bytes_total", "Bytes that it wrote, upkeep included."},
	{"cxl_kv_store_unwiped_bytes", "Bytes of segments with dropped contents to wipe."},
	{"cxl_kv_store_errors_total", "Blocks or requests that the store failed."},
	{"cxl_kv_sampled_events_total", "Access events by their source."},
	{"cxl_kv_sampling_lost_total", "Access events that found no room and were dropped."},
	{"cxl_kv_accesses_total",
	 "Accesses to blocks, by hints and samples, by the tier that the block was in."},
	{"cxl_kv_objects", "Keyed objects, those that are being stored or leave included."},
	{"cxl_kv_objects_in_flight", "Loads, stores and calls about keys that are under way."},
	{"cxl_kv_object_pool_bytes", "What all keyed objects together may take, hot to cold."},
	{"cxl_kv_object_pool_free_bytes", "What of it is free."},
	{"cxl_kv_objects_evicted_total", "Objects that left for want of room."},
	{"cxl_kv_objects_removed_total", "Objects that are found no more, for whatever reason."},
	{"cxl_kv_object_errors_total", "Objects that failed their checksum or were lost, and keys "
				       "of jobs that ran into their deadline."},
};

const char *help_of(const char *name)
{
	for (const Meaning &meaning : meanings)
		if (!strcmp(meaning.name, name))
			return meaning.help;
	return "";
}

/* Counters are named so. */
bool is_counter(const std::string &name)
{
	return name.ends_with("_total");
}

std::string header(const char *name, const char *help)
{
	return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name,
			   is_counter(name) ? "counter" : "gauge", help);
}

std::string seconds(uint64_t ns)
{
	return fmt::format("{:.9g}", static_cast<double>(ns) / 1e9);
}

std::string value_text(uint64_t value, Unit unit)
{
	return unit == Unit::One ? fmt::format("{}", value) : seconds(value);
}

std::string histogram(const json &status, const Times &of)
{
	std::string out = fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", of.name, of.help);
	json all = status.value(json::json_pointer(of.pointer), json::object());
	uint64_t count = number_at(all, "/count");

	for (const json &bucket : all.value("at_most_ns", json::array()))
		out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", of.name,
				   seconds(number_at(bucket, "/0")),
				   std::min(number_at(bucket, "/1"), count));
	return out + fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n",
				 of.name, count, seconds(number_at(all, "/sum_ns")));
}

/* A client's name as a label's value. */
std::string escaped(const std::string &text)
{
	std::string out;
	for (char c : text) {
		if (c == '\\' || c == '"')
			out += '\\';
		if (c == '\n')
			out += "\\n";
		else if (static_cast<unsigned char>(c) >= ' ')
			out += c;
	}
	return out;
}

/* What the tenant's clients did, each metric with its label. */
constexpr struct {
	const char *name, *help, *label;
	std::array<std::pair<const char *, const char *>, 4>
		samples; /* value of the label, pointer */
} tenant_counters[] = {
	{"cxl_kv_object_lookups_total",
	 "Keys looked up, as the clients say.",
	 "result",
	 {{{"hit", "/objects/hits"}, {"miss", "/objects/misses"}}}},
	{"cxl_kv_object_transfers_total",
	 "Objects, or parts of one, stored and loaded.",
	 "direction",
	 {{{"store", "/objects/stored"}, {"load", "/objects/loaded"}}}},
	{"cxl_kv_decisions_total",
	 "Answers to the question whether KV is fetched or computed.",
	 "verdict",
	 {{{"fetch", "/decisions/fetch"},
	   {"recompute", "/decisions/recompute"},
	   {"split", "/decisions/split"},
	   {"drop", "/decisions/drop"}}}},
};

std::string tenant_counter_metrics(const json &status)
{
	const json none = json::array();
	const bool any = status.contains("tenants") && status["tenants"].is_array();
	std::string out;

	for (const auto &metric : tenant_counters) {
		out += header(metric.name, metric.help);
		for (const json &tenant : any ? status["tenants"] : none)
			for (const auto &[value, pointer] : metric.samples)
				if (value)
					out += fmt::format(
						"{}{{tenant=\"{}\",{}=\"{}\"}} {}\n", metric.name,
						escaped(text_at(tenant, "/name")), metric.label,
						value, number_at(tenant, pointer));
	}
	return out;
}

/* A quota that there is not has no sample. */
std::string tenant_metrics(const json &status)
{
	std::string bytes, quotas;

	if (status.contains("tenants") && status["tenants"].is_array())
		for (const json &tenant : status["tenants"])
			for (const char *tier : {"hot", "warm", "cold"}) {
				std::string labels =
					fmt::format("{{tenant=\"{}\",tier=\"{}\"}}",
						    escaped(text_at(tenant, "/name")), tier);
				std::string at = std::string("/") + tier;
				bytes += fmt::format("cxl_kv_tenant_bytes{} {}\n", labels,
						     number_at(tenant, (at + "/bytes").c_str()));
				json::json_pointer quota(at + "/quota_bytes");
				if (tenant.is_object() && tenant.contains(quota) &&
				    tenant.at(quota).is_number())
					quotas += fmt::format("cxl_kv_tenant_quota_bytes{} {}\n",
							      labels,
							      tenant.at(quota).get<uint64_t>());
			}
	return header("cxl_kv_tenant_bytes", "KV bytes of the tenant by tier.") + bytes +
	       header("cxl_kv_tenant_quota_bytes", "What the tenant may have.") + quotas;
}

std::string arena_metrics(const json &list)
{
	if (!list.contains("arenas") || !list["arenas"].is_array())
		return "";
	std::string bytes, hints, errors;
	for (const json &arena : list["arenas"]) {
		std::string labels =
			fmt::format("arena=\"{}\",name=\"{}\"", number_at(arena, "/arena"),
				    escaped(text_at(arena, "/name")));
		for (const char *tier : {"hot", "warm", "cold", "lost"})
			bytes += fmt::format(
				"cxl_kv_arena_bytes{{{},tier=\"{}\"}} {}\n", labels, tier,
				number_at(arena, (std::string("/bytes/") + tier).c_str()));
		json::json_pointer nmse("/format/nmse"), worst("/format/worst_nmse");
		if (arena.contains(nmse) && arena.at(nmse).is_number())
			errors += fmt::format("cxl_kv_format_nmse{{{0},heads=\"all\"}} {1:.4g}\n"
					      "cxl_kv_format_nmse{{{0},heads=\"worst\"}} {2:.4g}\n",
					      labels, arena.at(nmse).get<double>(),
					      arena.value(worst, 0.0));
		hints += fmt::format("cxl_kv_hints_total{{{},result=\"taken\"}} {}\n", labels,
				     number_at(arena, "/hints"));
		hints += fmt::format("cxl_kv_hints_total{{{},result=\"refused\"}} {}\n", labels,
				     number_at(arena, "/bad_hints"));
	}
	return header("cxl_kv_arena_bytes", "KV bytes of the arena by tier.") + bytes +
	       header("cxl_kv_format_nmse", "Error of lossy formats against what was spilled.") +
	       errors + header("cxl_kv_hints_total", "Hints of the arena's engine.") + hints;
}

} // namespace

std::string metrics_text(const json &status, const json &list)
{
	std::string out = header("cxl_kv_up", "1 while the daemon answers.") + "cxl_kv_up 1\n";

	out += header("cxl_kv_info", "Release, mode and policy, as labels; always 1.");
	out += fmt::format("cxl_kv_info{{version=\"{}\",mode=\"{}\",preset=\"{}\"}} 1\n",
			   escaped(text_at(status, "/version")), escaped(text_at(status, "/mode")),
			   escaped(text_at(status, "/preset")));
	const char *metric = "";
	for (const Sample &sample : samples) {
		if (strcmp(metric, sample.name) != 0)
			out += header(sample.name, help_of(sample.name));
		metric = sample.name;
		out += fmt::format("{}{}{}{} {}\n", metric, *sample.labels ? "{" : "",
				   sample.labels, *sample.labels ? "}" : "",
				   value_text(number_at(status, sample.pointer), sample.unit));
	}
	for (const Times &of : times)
		out += histogram(status.is_object() ? status : json::object(), of);
	return out + tenant_metrics(status) + tenant_counter_metrics(status) + arena_metrics(list);
}

std::string metrics_text_down()
{
	return header("cxl_kv_up", "1 while the daemon answers.") + "cxl_kv_up 0\n";
}

} // namespace cxlkv
