/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cxl-kv top: tiers, rates and the heat map of one arena, again and again. On
 * a terminal with keys and colours; else plain frames, for a file or a pipe.
 */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/terminal.h"
#include "cli/top_view.h"

#include <chrono>
#include <fmt/format.h>
#include <optional>
#include <thread>

namespace cxlkv {

namespace {

using Clock = std::chrono::steady_clock;

struct TopOptions {
	double interval_s = 1;
	uint64_t nr_frames = 0; /* 0 = until told to stop; where no terminal is, 1 */
	uint64_t arena = 0;     /* its number; 0 = the first of an engine */
};

/* Asks for samples on one connection; comes back by itself when the daemon does. */
class Sampler {
public:
	Result<TopSample> sample(uint64_t arena)
	{
		if (!client_) {
			auto client = ControlClient::connect();
			if (!client)
				return client.error();
			client_.emplace(std::move(*client));
		}
		auto got = ask(arena);
		if (!got)
			client_.reset();
		return got;
	}

private:
	Result<TopSample> ask(uint64_t arena)
	{
		TopSample sample;
		auto status = client_->call({{"op", "status"}});
		if (!status)
			return status.error();
		sample.status = std::move(*status);
		sample.at_s =
			std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
		auto list = client_->call({{"op", "list"}});
		if (!list)
			return list.error();
		sample.arena = pick_arena(*list, arena, sample.status);
		if (sample.arena.is_null()) /* gone; another instead */
			sample.arena = pick_arena(*list, 0, sample.status);
		if (sample.arena.is_null())
			return sample;
		/* The arena may be gone by now; the next sample knows. */
		auto heads = client_->call(
			{{"op", "heads"}, {"arena", number_at(sample.arena, "/arena")}});
		if (heads)
			sample.heads = std::move(*heads);
		else if (heads.error().code != EREMOTEIO)
			return heads.error();
		return sample;
	}

	std::optional<ControlClient> client_;
};

/* The next arena's number after the one shown; the first's after the last. */
uint64_t next_arena(uint64_t shown)
{
	auto client = ControlClient::connect();
	if (!client)
		return shown;
	auto list = client->call({{"op", "list"}});
	if (!list)
		return shown;
	uint64_t next = 0, first = 0;
	for (const auto &entry : (*list)["arenas"]) {
		uint64_t number = number_at(entry, "/arena");
		if (number > shown && (!next || number < next))
			next = number;
		if (!first || number < first)
			first = number;
	}
	return next ? next : first;
}

/* The first sample; an arena that goes away later is replaced by another. */
Result<TopSample> begin(Sampler &sampler, uint64_t arena)
{
	auto sample = sampler.sample(arena);
	if (sample && arena && number_at(sample->arena, "/arena") != arena)
		return error(ENODATA,
			     fmt::format("there is no arena {}; `cxl-kv list` shows them", arena));
	return sample;
}

int run_plain(const TopOptions &options)
{
	Sampler sampler;
	auto before = begin(sampler, options.arena);
	if (!before)
		return complain(before.error());
	for (uint64_t frame = 0; frame < std::max<uint64_t>(options.nr_frames, 1); frame++) {
		std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
		auto now = sampler.sample(options.arena);
		if (!now)
			return complain(now.error());
		fmt::print("{}{}", frame ? "\n" : "",
			   plain(top_frame(*before, *now, HeatOf::Score, {80, 60})));
		fflush(stdout);
		before = std::move(now);
	}
	return kExitOk;
}

int run_terminal(TopOptions options)
{
	Sampler sampler;
	auto before = begin(sampler, options.arena);
	if (!before)
		return complain(before.error()); /* while the terminal is still the shell's */

	Terminal terminal;
	TopSample shown = *before;
	HeatOf of = HeatOf::Score;
	std::string notice;
	auto next = Clock::now();
	for (uint64_t frame = 0; !options.nr_frames || frame < options.nr_frames;) {
		terminal.show(top_frame(*before, shown, of, Terminal::room()),
			      notice.empty() ? "q quit   a next arena   m map: score, hot, cold"
					     : notice);
		auto wait =
			std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now());
		int key = Terminal::key(static_cast<int>(std::max<int64_t>(wait.count(), 0)));
		if (key == 'q' || key == 'Q')
			return kExitOk;
		if (key == 'm' || key == 'M')
			of = static_cast<HeatOf>((static_cast<size_t>(of) + 1) % kNrHeatOf);
		if (key == 'a' || key == 'A')
			options.arena = next_arena(number_at(shown.arena, "/arena"));
		else if (Clock::now() < next)
			continue;
		next = Clock::now() + std::chrono::duration_cast<Clock::duration>(
					      std::chrono::duration<double>(options.interval_s));
		auto now = sampler.sample(options.arena);
		notice = now ? "" : "no answer, trying again: " + now.error().what;
		if (now) {
			*before = std::exchange(shown, std::move(*now));
			frame++;
		}
	}
	return kExitOk;
}

} // namespace

int cmd_top(int argc, char **argv)
{
	TopOptions options;
	Args args("top",
		  "Shows tiers, rates and a heat map of one arena by layer and KV head, live.\n"
		  "Keys: q quit, a next arena, m what the map shows. Where the output is no "
		  "terminal,\n"
		  "prints plain frames: one, or as many as --frames says.");
	args.number('d', "delay", "SECONDS", options.interval_s, {0.1, 3600},
		    "time between frames (1)");
	args.number('n', "frames", "N", options.nr_frames, {1, 1e9}, "stop after so many frames");
	args.number('a', "arena", "N", options.arena, {1, 4294967295.0},
		    "the arena of the map (the first of an engine)");
	if (auto exit = args.parse(argc, argv))
		return *exit;
	return Terminal::usable() ? run_terminal(options) : run_plain(options);
}

} // namespace cxlkv
