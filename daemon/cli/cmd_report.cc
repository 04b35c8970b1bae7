/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv report: watches one arena for a while and draws its heat map over time. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/heat_report.h"
#include "cli/json_text.h"
#include "cli/units.h"

#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace cxlkv {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

volatile sig_atomic_t interrupted = 0;

struct ReportOptions {
	double seconds = 10, interval_s = 0.5;
	uint64_t arena = 0; /* 0 = the first of an engine */
	std::string output;
	bool as_json = false;
};

/* The arena asked for, or the first of an engine. */
Result<json> find_arena(ControlClient &client, uint64_t number)
{
	auto status = client.call({{"op", "status"}});
	if (!status)
		return status.error();
	auto list = client.call({{"op", "list"}});
	if (!list)
		return list.error();
	if (json arena = pick_arena(*list, number, *status); !arena.is_null())
		return arena;
	return error(ENODATA,
		     number ? fmt::format("there is no arena {}; `cxl-kv list` shows them", number)
			    : std::string("no arena: no engine is connected"));
}

/* Samples until the time is over, somebody interrupts, or the arena is gone. */
Result<> watch(ControlClient &client, uint64_t number, const ReportOptions &options,
	       HeatReport &report)
{
	const auto begin = Clock::now();
	const bool people = isatty(STDERR_FILENO);

	for (;;) {
		const double at_s = std::chrono::duration<double>(Clock::now() - begin).count();
		auto heads = client.call({{"op", "heads"}, {"arena", number}});
		if (!heads && (heads.error().code != EREMOTEIO || report.samples.empty()))
			return heads.error();
		if (!heads) /* the engine has ended; what was seen is the report */
			break;
		report.samples.push_back({at_s, std::move(*heads)});
		if (people)
			fmt::print(stderr, "\r\033[K{:.0f} of {:.0f} s", at_s, options.seconds);
		if (interrupted || at_s + options.interval_s > options.seconds)
			break;
		/* usleep ends early at a signal, which is what Ctrl-C is for. */
		usleep(static_cast<useconds_t>(options.interval_s * 1e6));
	}
	if (people)
		fmt::print(stderr, "\r\033[K");
	return ok();
}

json to_json(const HeatReport &report)
{
	json samples = json::array();
	for (const HeatSample &sample : report.samples)
		samples.push_back({{"at_s", sample.at_s},
				   {"layers", sample.heads["layers"]},
				   {"kv_heads", sample.heads["kv_heads"]},
				   {"heads", sample.heads["heads"]}});
	return {{"title", report.title}, {"samples", samples}};
}

} // namespace

int cmd_report(int argc, char **argv)
{
	ReportOptions options;
	HeatReport report;
	Args args("report",
		  "Watches one arena and draws a heat map by layer and KV head over time: as text, "
		  "or as SVG\nwith -o. Ctrl-C ends the watch early; what was seen is drawn.");
	args.number('t', "time", "SECONDS", options.seconds, {0.1, 86400}, "how long (10)");
	args.number('d', "delay", "SECONDS", options.interval_s, {0.05, 3600},
		    "from one sample to the next (0.5)");
	args.number('a', "arena", "N", options.arena, {1, 4294967295.0},
		    "its number (the first of an engine)");
	args.check(
		'm', "map", "WHAT",
		[&](const std::string &what) -> std::string {
			if (what != "score" && what != "hot" && what != "cold")
				return "score, hot or cold";
			report.of = what == "hot"    ? HeatOf::Hot
				    : what == "cold" ? HeatOf::Cold
						     : HeatOf::Score;
			return "";
		},
		"score, or the share of blocks that are hot or cold (score)");
	args.text('o', "output", "FILE", options.output, "write an SVG picture there");
	args.flag('j', "json", options.as_json, "print the samples as JSON");
	if (auto exit = args.parse(argc, argv))
		return *exit;

	auto client = ControlClient::connect();
	if (!client)
		return complain(client.error());
	auto arena = find_arena(*client, options.arena);
	if (!arena && arena.error().code == ENODATA) {
		fmt::print(stderr, "cxl-kv report: {}\n", arena.error().what);
		return kExitFailure;
	}
	if (!arena)
		return complain(arena.error());
	report.title = fmt::format("arena {}, {}", number_at(*arena, "/arena"),
				   printable(text_at(*arena, "/name")));
	struct sigaction on_interrupt {};
	on_interrupt.sa_handler = [](int) { interrupted = 1; };
	sigaction(SIGINT, &on_interrupt, nullptr);
	if (auto watched = watch(*client, number_at(*arena, "/arena"), options, report); !watched)
		return complain(watched.error());

	if (options.as_json)
		fmt::print("{}\n", json_text(to_json(report)));
	else if (options.output.empty())
		fmt::print("{}", heat_text(report));
	if (options.output.empty())
		return kExitOk;
	std::ofstream file(options.output);
	file << heat_svg(report);
	if (!file.flush()) {
		fmt::print(stderr, "cxl-kv report: {}: cannot be written\n", options.output);
		return kExitFailure;
	}
	return kExitOk;
}

} // namespace cxlkv
