/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/status_view.h"

#include "cli/control_client.h"
#include "cli/units.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

using nlohmann::json;

constexpr size_t kWidth = 80;

/* Reads fields of one object, printed. */
struct Fields {
	const json &object;

	[[nodiscard]] uint64_t number(const char *pointer) const
	{
		return number_at(object, pointer);
	}
	[[nodiscard]] std::string count(const char *pointer) const
	{
		return human_count(number(pointer));
	}
	[[nodiscard]] std::string bytes(const char *pointer) const
	{
		return human_bytes(number(pointer));
	}
	[[nodiscard]] std::string ns(const char *pointer) const
	{
		return human_ns(number(pointer));
	}
	[[nodiscard]] std::string text(const char *pointer) const
	{
		return text_at(object, pointer);
	}
	[[nodiscard]] bool flag(const char *pointer) const
	{
		const json::json_pointer at(pointer);
		return object.contains(at) && object.at(at) == true;
	}
};

/* A sampler that is blind on some CPUs shows here; -j has them all. */
std::string cpu_line(const json &status)
{
	const json::json_pointer at("/sampling/by_cpu");
	uint64_t events = 0, lost = 0, throttled = 0;

	if (!status.contains(at) || !status.at(at).is_array() || status.at(at).empty())
		return "";
	const json &cpus = status.at(at);
	auto events_of = [&](size_t cpu) { return number_at(cpus[cpu], "/events"); };
	size_t most = 0, fewest = 0;
	for (size_t cpu = 0; cpu < cpus.size(); cpu++) {
		events += events_of(cpu);
		lost += number_at(cpus[cpu], "/lost");
		throttled += number_at(cpus[cpu], "/throttled");
		most = events_of(cpu) > events_of(most) ? cpu : most;
		fewest = events_of(cpu) < events_of(fewest) ? cpu : fewest;
	}
	return fmt::format("  {} samples, {} lost, {} times throttled; most on CPU {}: {}, fewest "
			   "on CPU {}: {}\n",
			   human_count(events), human_count(lost), human_count(throttled), most,
			   human_count(events_of(most)), fewest, human_count(events_of(fewest)));
}

std::string head_lines(const Fields &f)
{
	std::string out = fmt::format(
		"cxl-kvd {}, pid {}, up {}, {} mode, {} policy, {} arena{}\n", f.text("/version"),
		f.number("/pid"), human_duration(f.number("/uptime_s")), f.text("/mode"),
		f.text("/preset"), f.number("/arenas"), f.number("/arenas") == 1 ? "" : "s");
	if (f.number("/arenas"))
		out += fmt::format("phases: {} prefill, {} decode, {} not known yet\n",
				   f.number("/phases/prefill"), f.number("/phases/decode"),
				   f.number("/phases/unknown"));
	std::string source = f.text("/sampling/source");
	out += "sampling: " + (source.empty() ? "none" : source) + "\n";
	out += cpu_line(f.object);
	json::json_pointer not_used("/sampling/not_used");
	if (f.object.contains(not_used) && f.object.at(not_used).is_object())
		for (const auto &[name, why] : f.object.at(not_used).items())
			if (why.is_string())
				out += "  " + wrap("not " + name + ": " + why.get<std::string>(),
						   kWidth - 6, 6);
	if (f.flag("/health/frozen"))
		out += "frozen: daemon.enabled is false, nothing moves or leaves by itself\n";
	if (f.flag("/draining/warm"))
		out += "draining: warm, until `cxl-kv drain --undo warm`\n";
	if (f.flag("/draining/cold"))
		out += "draining: cold, until `cxl-kv drain --undo cold`\n";
	return out;
}

std::string tier_line(const json &status, const char *name, const std::string &place)
{
	const json &tier = status.at("tiers").at(name);
	uint64_t used = number_at(tier, "/bytes"), limit = number_at(tier, "/limit_bytes");

	if (!limit && !used)
		return fmt::format("{} none\n", left(name, 5));
	return fmt::format("{} {} {} of {} {} {} {}\n", left(name, 5),
			   right(human_count(number_at(tier, "/blocks")), 8),
			   right(human_bytes(used), 9), left(human_bytes(limit), 9),
			   right(human_share(used, limit), 5), fill_bar(used, limit, 12), place);
}

std::string tier_lines(const json &status)
{
	std::string out = "\ntier    blocks      used    limit      full\n";

	if (!status.contains("tiers") || !status["tiers"].is_object())
		return out;
	for (const char *name : {"hot", "warm", "cold"}) {
		if (!status["tiers"].contains(name) || !status["tiers"][name].is_object())
			continue;
		const json &tier = status["tiers"][name];
		std::string nodes = node_list(tier);
		out += tier_line(status, name,
				 nodes.empty() ? text_at(tier, "/path") : "node " + nodes);
	}
	if (uint64_t lost = number_at(status, "/lost_blocks"))
		out += fmt::format(
			"lost  {}: could not be restored; their engine recomputes them\n",
			right(human_count(lost), 8));
	return out;
}

/* The latency of each node as measured, and which hot ones get no promotions for it. */
std::string gate_line(const json &status)
{
	const json::json_pointer at("/mover/latency_gate/nodes");
	std::string nodes;

	if (!status.contains(at) || !status.at(at).is_array())
		return "";
	for (const json &node : status.at(at)) {
		const json::json_pointer open("/open");
		if (real_at(node, "/ns") <= 0)
			continue;
		nodes += fmt::format("{}node {} {:.0f} ns", nodes.empty() ? "" : ", ",
				     number_at(node, "/node"), real_at(node, "/ns"));
		if (node.contains(open) && node.at(open) == false)
			nodes += " (no promotions)";
	}
	return nodes.empty() ? "" : "latency  " + wrap(nodes, kWidth - 9, 9);
}

std::string work_lines(const Fields &f)
{
	std::string out = "\n";
	out += fmt::format("made     {} blocks, {} dropped, {} requests found no room\n",
			   f.count("/made"), f.count("/dropped"), f.count("/no_room"));
	out += fmt::format("spill    {} blocks, {}; {} clean, {} aborted, {} failed, {} refused\n",
			   f.count("/spill/spilled"), f.bytes("/spill/spilled_bytes"),
			   f.count("/spill/clean"), f.count("/spill/aborted"),
			   f.count("/spill/failed"), f.count("/spill/refused"));
	if (f.number("/spill/encoded"))
		out += fmt::format(
			"format   {} blocks encoded with loss, {}; {} kept as they were\n",
			f.count("/spill/encoded"), f.bytes("/spill/encoded_bytes"),
			f.count("/spill/not_encoded"));
	out += fmt::format("restore  {} blocks, {}; {} by a fault, {} lost; p50 {}, p99 {}\n",
			   f.count("/restore/restored"), f.bytes("/restore/restored_bytes"),
			   f.count("/restore/demand"), f.count("/restore/lost"),
			   f.ns("/restore/p50_ns"), f.ns("/restore/p99_ns"));
	out += fmt::format(
		"sessions {} active, {} idle, {} parked; {} given up, {} told to wait\n",
		f.count("/sessions/active"), f.count("/sessions/idle"),
		human_count(f.number("/sessions/parked_warm") + f.number("/sessions/parked_cold")),
		f.count("/sessions/nr_dropped"), f.count("/wake/busy"));
	out += fmt::format("wake     {} sessions; p50 {}, p99 {}\n", f.count("/wake/count"),
			   f.ns("/wake/p50_ns"), f.ns("/wake/p99_ns"));
	out += fmt::format("faults   {} missing, {} write-protect, {} minor\n",
			   f.count("/faults/missing"), f.count("/faults/wp"),
			   f.count("/faults/minor"));
	out += fmt::format("store    {} of {}; errors: {} checksum, {} I/O, {} without space\n",
			   f.bytes("/store/used_bytes"), f.bytes("/store/capacity_bytes"),
			   f.count("/store/checksum_failures"), f.count("/store/io_errors"),
			   f.count("/store/no_space"));
	for (const char *direction : {"promote", "demote"}) {
		std::string at = std::string("/mover/") + direction;
		auto number = [&](const char *name) { return f.count((at + name).c_str()); };
		out += fmt::format("{} {} attempted = {} moved + {} failed + {} skipped; {}\n",
				   left(direction, 8), number("/attempted"), number("/moved"),
				   number("/failed"), number("/skipped"),
				   f.bytes((at + "/bytes").c_str()));
	}
	if (f.number("/mover/no_space"))
		out += fmt::format("         {} moves found no space on the other node\n",
				   f.count("/mover/no_space"));
	out += gate_line(f.object);
	return out;
}

} // namespace

std::string fill_bar(uint64_t part, uint64_t whole, size_t width)
{
	if (!whole)
		return std::string(width + 2, ' ');
	double share = std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
	auto full = static_cast<size_t>(share * static_cast<double>(width) + 0.5);
	return "[" + std::string(full, '#') + std::string(width - full, '.') + "]";
}

std::string node_list(const json &tier)
{
	std::string out;

	if (tier.contains("nodes") && tier["nodes"].is_array())
		for (const json &node : tier["nodes"])
			if (node.is_number_integer())
				out += (out.empty() ? "" : ",") +
				       std::to_string(node.get<int64_t>());
	return out;
}

std::string status_text(const json &status)
{
	std::string out = head_lines({status}) + tier_lines(status) + work_lines({status});

	if (status.contains("warnings") && status["warnings"].is_array())
		for (const json &warning : status["warnings"])
			if (warning.is_string())
				out += wrap("warning: " + warning.get<std::string>(), kWidth - 9,
					    9);
	return out;
}

} // namespace cxlkv
