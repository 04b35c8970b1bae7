/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cxl-kv bench: measures the tiers of this host. Needs no daemon; where one runs,
 * its nodes and its spill folder are what is measured. `plan --measured` reads the JSON.
 */
#include "base/result.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/json_text.h"
#include "cli/units.h"
#include "sys/host.h"
#include "sys/tier_bench.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace cxlkv {

namespace {

using nlohmann::json;

struct BenchOptions {
	std::string folder; /* "" = the daemon's, else /var/lib/cxl-kv */
	uint64_t memory_MiB = 256, file_MiB = 1024, block_KiB = 64;
	double seconds = 1;
	bool no_drive = false, as_json = false;
	std::string output;
};

struct Node {
	int id;
	std::string tier;
};

/* Progress goes to people only. */
void progress(const std::string &what)
{
	if (isatty(STDERR_FILENO))
		fmt::print(stderr, "\r\033[K{}", what.empty() ? "" : "measuring " + what + " ...");
}

std::vector<Node> nodes_of_host(const Host &host)
{
	std::vector<int> cpus = id_list(host.line("/sys/devices/system/node/has_cpu"));
	std::vector<Node> nodes;

	for (int id : id_list(host.line("/sys/devices/system/node/has_memory")))
		nodes.push_back({id, std::ranges::find(cpus, id) != cpus.end() ? "hot" : "warm"});
	if (nodes.empty()) /* a kernel without NUMA */
		nodes.push_back({0, "hot"});
	return nodes;
}

/* The running daemon knows best what is measured. */
std::vector<Node> choose_nodes(const json &status)
{
	std::vector<Node> nodes;

	for (const char *tier : {"hot", "warm"})
		for (const json &id :
		     status.value(json::json_pointer(std::string("/tiers/") + tier + "/nodes"),
				  json::array()))
			if (id.is_number_unsigned())
				nodes.push_back({id.get<int>(), tier});
	return nodes.empty() ? nodes_of_host(Host()) : nodes;
}

std::string choose_folder(const BenchOptions &options, const json &status)
{
	if (!options.folder.empty())
		return options.folder;
	std::string file = text_at(status, "/tiers/cold/path");
	return file.empty() ? "/var/lib/cxl-kv"
			    : std::filesystem::path(file).parent_path().string();
}

json utc_now()
{
	char text[32];
	time_t now = time(nullptr);
	strftime(text, sizeof(text), "%FT%TZ", gmtime(&now));
	return text;
}

/* What could not be measured is named in "failed", and the rest is still of use. */
class Bench {
public:
	explicit Bench(const BenchOptions &options) : options_(options) {}

	json run(const std::vector<Node> &nodes, const std::string &folder)
	{
		out_ = {{"version", 1},
			{"measured_at", utc_now()},
			{"nodes", json::array()},
			{"moves", json::array()},
			{"failed", json::array()}};
		for (const Node &node : nodes)
			measure(node);
		for (const Node &from : nodes)
			for (const Node &to : nodes)
				if (from.tier != to.tier)
					measure(from, to);
		if (!options_.no_drive)
			measure(folder);
		progress("");
		return out_;
	}

private:
	[[nodiscard]] uint64_t bytes() const { return options_.memory_MiB << 20; }

	void failed(const std::string &what, const Error &why)
	{
		out_["failed"].push_back({{"what", what}, {"why", why.what}});
	}

	void measure(const Node &node)
	{
		std::string name = fmt::format("node {}", node.id);
		progress(name);
		auto got = measure_node(node.id, bytes(), options_.seconds);
		if (!got)
			return failed(name, got.error());
		out_["nodes"].push_back({{"node", node.id},
					 {"tier", node.tier},
					 {"read_ns", got->read_ns},
					 {"read_MBps", got->read_MBps},
					 {"write_MBps", got->write_MBps},
					 {"copy_MBps", got->copy_MBps}});
	}

	void measure(const Node &from, const Node &to)
	{
		std::string name = fmt::format("moves from node {} to node {}", from.id, to.id);
		progress(name);
		auto got = measure_move(from.id, to.id, bytes(), options_.seconds);
		if (!got)
			return failed(name, got.error());
		out_["moves"].push_back({{"from", from.id}, {"to", to.id}, {"MBps", *got}});
	}

	void measure(const std::string &folder)
	{
		progress("the drive of " + folder);
		auto got = measure_drive(folder, options_.file_MiB << 20,
					 static_cast<uint32_t>(options_.block_KiB << 10),
					 options_.seconds);
		if (!got)
			return failed("cold", got.error());
		out_["cold"] = {{"folder", folder},
				{"write_MBps", got->write_MBps},
				{"read_MBps", got->read_MBps},
				{"block_bytes", options_.block_KiB << 10},
				{"block_read_p50_ns", got->block_read_p50_ns},
				{"block_read_p99_ns", got->block_read_p99_ns}};
	}

	const BenchOptions &options_;
	json out_;
};

void print_table(const json &figures)
{
	auto rate = [](const json &in, const char *name) {
		return right(human_rate(real_at(in, name) * 1e6), 10);
	};
	fmt::print("{} {} {} {} {} {}\n", left("NODE", 6), left("TIER", 5), right("LATENCY", 9),
		   right("READ", 10), right("WRITE", 10), right("COPY", 10));
	for (const json &node : figures["nodes"])
		fmt::print("{} {} {} {} {} {}\n", left(std::to_string(number_at(node, "/node")), 6),
			   left(text_at(node, "/tier"), 5),
			   right(fmt::format("{:.0f} ns", real_at(node, "/read_ns")), 9),
			   rate(node, "/read_MBps"), rate(node, "/write_MBps"),
			   rate(node, "/copy_MBps"));
	for (const json &move : figures["moves"])
		fmt::print("moves from node {} to node {}: {}\n", number_at(move, "/from"),
			   number_at(move, "/to"), human_rate(real_at(move, "/MBps") * 1e6));
	if (figures.contains("cold")) {
		const json &cold = figures["cold"];
		fmt::print("cold, {}: write {}, read {}; a block of {}: p50 {}, p99 {}\n",
			   text_at(cold, "/folder"), human_rate(real_at(cold, "/write_MBps") * 1e6),
			   human_rate(real_at(cold, "/read_MBps") * 1e6),
			   human_bytes(number_at(cold, "/block_bytes")),
			   human_ns(number_at(cold, "/block_read_p50_ns")),
			   human_ns(number_at(cold, "/block_read_p99_ns")));
	}
}

} // namespace

int cmd_bench(int argc, char **argv)
{
	BenchOptions options;
	Args args(
		"bench",
		"Measures this host's tiers: latency and bandwidth of each node, the rate of moves "
		"between\nthem, and the drive of the cold tier. Takes under a minute; needs no "
		"daemon, but shares the\nmachine with whatever else runs on it.");
	args.text('s', "spill", "FOLDER", options.folder,
		  "folder on the drive (the daemon's, else /var/lib/cxl-kv)");
	args.flag(0, "no-drive", options.no_drive, "memory only");
	args.number(0, "memory", "MiB", options.memory_MiB, {16, 65536},
		    "buffer on each node (256); larger than the caches of the CPUs");
	args.number(0, "file", "MiB", options.file_MiB, {16, 1048576},
		    "file without a name on the drive (1024)");
	args.number(0, "block", "KiB", options.block_KiB, {4, 1024},
		    "block of the random reads (64)");
	args.number('t', "time", "SECONDS", options.seconds, {0.05, 10}, "for each figure (1)");
	args.text('o', "output", "FILE", options.output,
		  "write the JSON there, for `cxl-kv plan --measured`");
	args.flag('j', "json", options.as_json, "print the figures as JSON");
	if (auto exit = args.parse(argc, argv))
		return *exit;
	if (options.block_KiB % 4)
		return args.wrong("--block: has to be a multiple of 4 (KiB)");

	json status = json::object();
	if (auto got = ask_daemon({{"op", "status"}}))
		status = std::move(*got);
	json figures = Bench(options).run(choose_nodes(status), choose_folder(options, status));
	if (options.as_json)
		fmt::print("{}\n", json_text(figures, 2));
	else
		print_table(figures);
	for (const json &failure : figures["failed"])
		fmt::print(stderr, "cxl-kv bench: {}: {}\n", text_at(failure, "/what"),
			   text_at(failure, "/why"));
	if (!options.output.empty()) {
		std::ofstream file(options.output);
		file << json_text(figures, 2) << "\n";
		if (!file.flush()) {
			fmt::print(stderr, "cxl-kv bench: {}: cannot be written\n", options.output);
			return kExitFailure;
		}
	}
	return figures["failed"].empty() ? kExitOk : kExitFailure;
}

} // namespace cxlkv
