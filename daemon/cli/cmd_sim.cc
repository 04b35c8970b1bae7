/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv sim: traces through the policy and its rivals. Needs no daemon. */
#include "base/json_from.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "sim/run.h"
#include "sim/synthetic.h"
#include "sim/trace_file.h"

#include <charconv>
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace cxlkv {

namespace {

using namespace sim;

struct SimOptions {
	std::vector<std::string> files, policies;
	std::vector<double> capacities;
	Access access;
	std::optional<ThreeTiers> tiers;
	std::optional<Synthetic> synthetic;
	bool ladder = false, csv = false, json = false, quiet = false;
	std::string svg;
};

std::vector<std::string> split(const std::string &text)
{
	std::vector<std::string> parts;
	for (size_t at = 0; at <= text.size();) {
		size_t end = std::min(text.find(',', at), text.size());
		parts.push_back(text.substr(at, end - at));
		at = end + 1;
	}
	return parts;
}

/* "" or what is allowed. */
std::string parse_numbers(const std::string &text, double low, double high, std::vector<double> &to)
{
	to.clear();
	for (const std::string &part : split(text)) {
		double value = 0;
		auto [at, wrong] = std::from_chars(part.data(), part.data() + part.size(), value);
		if (wrong != std::errc() || at != part.data() + part.size() ||
		    !(value > low && value <= high))
			return fmt::format("numbers above {:g} and up to {:g}, separated by commas",
					   low, high);
		to.push_back(value);
	}
	return "";
}

ThreeTiers own_tiers(double hot_ns, double warm_ns, double cold_ns, const std::string &source)
{
	ThreeTiers tiers;
	tiers.source = fmt::format("{}: {:.0f}, {:.0f}, {:.0f} ns; warm {:g} times as large as hot",
				   source, hot_ns, warm_ns, cold_ns, tiers.warm_ratio);
	tiers.latency = {hot_ns, warm_ns, cold_ns, tiers.latency.cold_share};
	tiers.paper_split = false;
	return tiers;
}

std::string take_latencies(const std::string &text, SimOptions &options)
{
	std::vector<double> ns;
	std::string wrong = parse_numbers(text, 0, 1e12, ns);
	if (!wrong.empty() || ns.size() != 3)
		return "three numbers: ns of hot, warm and cold";
	options.tiers = own_tiers(ns[0], ns[1], ns[2], "latencies as given");
	return "";
}

/* What `cxl-kv bench` measured: the fastest node of a tier, the median read of a block. */
std::string take_measured(const std::string &path, SimOptions &options)
{
	auto figures = json_from_file(path);
	if (!figures || !figures->is_object())
		return "a file that `cxl-kv bench -o` wrote";
	double ns[3] = {0, 0, real_at(*figures, "/cold/block_read_p50_ns")};
	for (const auto &node : figures->value("nodes", nlohmann::json::array())) {
		double &best = ns[text_at(node, "/tier") == "warm"];
		double read = real_at(node, "/read_ns");
		best = best > 0 ? std::min(best, read) : read;
	}
	static const char *const names[] = {"hot", "warm", "cold"};
	for (int i = 0; i < 3; i++)
		if (!(ns[i] > 0))
			return fmt::format("figures of three tiers, and {} was not measured on "
					   "this host; give --latencies instead",
					   names[i]);
	options.tiers = own_tiers(ns[0], ns[1], ns[2], "latencies as measured");
	return "";
}

/* USERSxTOKENSxHEADS; false where it is something else. */
bool take_load(const std::string &text, Synthetic &load)
{
	const char *at = text.data(), *end = at + text.size();

	for (uint32_t *to : {&load.users, &load.tokens, &load.heads}) {
		if (to != &load.users && (at == end || *at++ != 'x'))
			return false;
		auto [next, wrong] = std::from_chars(at, end, *to);
		if (wrong != std::errc())
			return false;
		at = next;
	}
	return at == end;
}

/* For people, and only when it takes long. */
Progress progress_bar(bool quiet)
{
	using Clock = std::chrono::steady_clock;
	if (quiet || !isatty(STDERR_FILENO))
		return [](double) {};
	return [last = -1, begin = Clock::now()](double share) mutable {
		int percent = static_cast<int>(share * 100);
		if (percent == last || Clock::now() - begin < std::chrono::seconds(2))
			return;
		last = percent;
		std::string bar(static_cast<size_t>(percent / 4), '#');
		bar.resize(25, '.');
		fprintf(stderr, "\r[%s] %3d %%%s", bar.c_str(), percent,
			percent == 100 ? "\r\033[K" : "");
		fflush(stderr);
	};
}

/* All policies, or those that were named. */
template <typename Policy>
Result<std::vector<const Policy *>> choose(const std::vector<Policy> &all,
					   const std::vector<std::string> &names)
{
	std::vector<const Policy *> chosen;
	for (const Policy &policy : all)
		if (names.empty())
			chosen.push_back(&policy);
	for (const std::string &name : names) {
		auto it = std::find_if(all.begin(), all.end(),
				       [&](const Policy &p) { return name == p.name; });
		if (it == all.end()) {
			std::string known;
			for (const Policy &policy : all)
				known += std::string(known.empty() ? "" : ", ") + policy.name;
			return error(EINVAL,
				     "no policy " + name + " for this trace; there are " + known);
		}
		chosen.push_back(&*it);
	}
	return chosen;
}

int fail(const std::string &what)
{
	fprintf(stderr, "cxl-kv sim: %s\n", what.c_str());
	return kExitFailure;
}

/* Which policies there are is known once the trace is read. */
int no_policy(const std::string &what)
{
	fail(what);
	return kExitUsage;
}

int print(const SimResult &result, const SimOptions &options)
{
	std::string text = options.json  ? to_json(result)
			   : options.csv ? to_csv(result)
					 : to_table(result) + gap_summary(result);
	fputs(text.c_str(), stdout);
	if (result.tiers && !options.json && !options.csv)
		fmt::print("# ns: a model of the access, {}\n", result.tiers->source);
	if (options.svg.empty())
		return kExitOk;
	std::ofstream file(options.svg);
	file << to_svg(result);
	file.close();
	return file ? kExitOk : fail(options.svg + ": cannot be written");
}

int run_block_trace(const std::string &path, const std::string &bytes, const SimOptions &options)
{
	if (options.ladder)
		return fail(path + ": --ladder needs .att traces: its rungs are about heads");
	const bool several = options.files.size() > 1;
	if (several && (options.csv || options.json || !options.svg.empty()))
		return fail("--csv, --json and --svg take one trace of requests at a time");
	auto trace = parse_block_trace(bytes);
	if (!trace)
		return fail(trace.error().in(path).what);
	auto policies = choose(cache_policies(), options.policies);
	if (!policies)
		return no_policy(policies.error().what);
	std::vector<double> capacities = options.capacities;
	if (capacities.empty())
		capacities = {1, 2, 5, 10, 20, 50};
	SimResult result = run_blocks(*trace, *policies, capacities, options.tiers,
				      progress_bar(options.quiet));
	if (several)
		result.trace = path + ": " + result.trace;
	return print(result, options);
}

int run_att_traces(const std::vector<AttTrace> &traces, const SimOptions &options)
{
	auto policies = choose(options.ladder ? att_ladder() : att_policies(), options.policies);
	if (!policies)
		return no_policy(policies.error().what);
	std::vector<double> budgets = options.capacities;
	if (budgets.empty())
		budgets = {5, 10, 20, 50};
	return print(run_att(traces, *policies, options.access, budgets, options.tiers,
			     progress_bar(options.quiet)),
		     options);
}

int run_synthetic_load(const SimOptions &options)
{
	std::vector<std::string> policies = options.policies;
	std::vector<double> budgets = options.capacities;
	if (policies.empty())
		policies = {"adaptive", "paper", "lru"};
	for (const std::string &name : policies)
		if (name != "adaptive" && name != "paper" && name != "lru")
			return no_policy("no policy " + name +
					 " for a synthetic load; there are adaptive, paper, lru");
	if (budgets.empty())
		budgets = {10};
	return print(
		run_synthetic(*options.synthetic, policies, budgets, progress_bar(options.quiet)),
		options);
}

/* Attention traces are one sample, block traces are run one by one. */
int run(const SimOptions &options)
{
	std::vector<AttTrace> sequences;
	for (const std::string &path : options.files) {
		auto bytes = read_trace_file(path);
		if (!bytes)
			return fail(bytes.error().what);
		if (!AttTrace::is_att(*bytes)) {
			if (int exit = run_block_trace(path, *bytes, options))
				return exit;
			continue;
		}
		auto sequence = AttTrace::parse(std::move(*bytes));
		if (!sequence)
			return fail(sequence.error().in(path).what);
		sequences.push_back(std::move(*sequence));
	}
	return sequences.empty() ? kExitOk : run_att_traces(sequences, options);
}

} // namespace

int cmd_sim(int argc, char **argv)
{
	SimOptions options;
	bool three_tiers = false;
	Args args(
		"sim",
		"Runs traces through the adaptive policy, the baselines and Belady's OPT, and "
		"prints what\n"
		"was hit at several capacities. TRACE: Mooncake JSONL or `t_ms id id ...` lines "
		"(requests\n"
		"and their prefix blocks), or .att files (attention of a sequence); plain or .xz.");
	args.words("TRACE", options.files, 0);
	args.check(
		'p', "policies", "NAME,..",
		[&](const std::string &text) {
			options.policies = split(text);
			return std::string();
		},
		"only these; all by default");
	args.check(
		'c', "capacities", "PERCENT,..",
		[&](const std::string &text) {
			return parse_numbers(text, 0, 100, options.capacities);
		},
		"of the distinct blocks, or of the blocks of a sequence");
	args.check(
		'a', "access", "top:K|thr:X",
		[&](const std::string &text) {
			auto access = Access::parse(text);
			if (!access)
				return access.error().what;
			options.access = *access;
			return std::string();
		},
		"what a head reads in a step: its K best blocks, or mass above X (thr:0.01)");
	args.flag(0, "ladder", options.ladder,
		  "the paper's rungs, each added alone and removed alone (.att)");
	args.flag(0, "three-tiers", three_tiers,
		  "also the latency of hot, warm and cold, by the paper's model");
	args.check(
		0, "latencies", "HOT,WARM,COLD",
		[&](const std::string &text) { return take_latencies(text, options); },
		"three tiers with ns of your own, warm four times as large as hot");
	args.check(
		0, "measured", "FILE",
		[&](const std::string &text) { return take_measured(text, options); },
		"the same with what `cxl-kv bench -o FILE` measured");
	Synthetic load;
	bool synthetic = false;
	args.check(
		0, "synthetic", "USERSxTOKENSxHEADS",
		[&](const std::string &text) {
			synthetic = take_load(text, load);
			return synthetic ? "" : std::string("three numbers, like 16x131072x640");
		},
		"a made-up load instead of traces, to see how the policy scales");
	args.number(0, "steps", "N", load.steps, {2, 1e6}, "of a made-up load (16)");
	args.number(0, "block-tokens", "N", load.tokens_per_block, {1, 1e6}, "of it (16)");
	args.number(0, "seed", "N", load.seed, {0, 1e15}, "of it (1)");
	args.text(0, "svg", "FILE", options.svg, "plot hit against capacity");
	args.flag(0, "csv", options.csv, "print CSV");
	args.flag('j', "json", options.json, "print JSON");
	args.flag('q', "quiet", options.quiet, "no progress bar");
	if (auto exit = args.parse(argc, argv))
		return *exit;
	if (three_tiers && !options.tiers)
		options.tiers = ThreeTiers{};
	if (synthetic == !options.files.empty())
		return args.wrong(synthetic ? "a trace and --synthetic are two runs"
					    : "TRACE is missing");
	if (!synthetic)
		return run(options);
	if (std::string allowed = load.check(); !allowed.empty())
		return args.wrong("--synthetic takes " + allowed);
	options.synthetic = load;
	return run_synthetic_load(options);
}

} // namespace cxlkv
