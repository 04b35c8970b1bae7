/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cxl-kv replay: plays a trace of requests to the running daemon, as an engine
 * would: blocks are made at their first use, leased for each request, checked,
 * and given back. A load to watch the daemon under, and an end-to-end check.
 */
#include "base/histogram.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/json_text.h"
#include "cli/units.h"
#include "sim/block_trace.h"
#include "sim/trace_file.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <cxl_kv.h>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>

namespace cxlkv {

namespace {

using Clock = std::chrono::steady_clock;

volatile sig_atomic_t interrupted = 0;

struct ReplayOptions {
	uint64_t block_KiB = 16, nr_requests = 0, timeout_ms = 10000;
	double speed = 0; /* times the trace's own; 0 = as fast as it goes */
	bool as_json = false;
};

struct Counts {
	uint64_t requests = 0, no_room = 0; /* requests that found no room in time */
	uint64_t made = 0, hits = 0, restored = 0, lost = 0, wrong = 0; /* blocks */
	Histogram wait_ns; /* for all blocks of a request to be there */
};

double seconds_since(Clock::time_point begin)
{
	return std::chrono::duration<double>(Clock::now() - begin).count();
}

/* One session of one head, with a block for each block of the trace. */
class Player {
public:
	Player(const sim::BlockTrace &trace, const ReplayOptions &options)
	    : trace_(trace), options_(options), known_(trace.nr_unique())
	{
	}
	~Player()
	{
		cxl_kv_arena_destroy(arena_);
		cxl_kv_close(kv_);
	}
	Player(const Player &) = delete;
	Player &operator=(const Player &) = delete;

	/* 0 or a negative errno; the library has said on stderr what is wrong. */
	int begin()
	{
		constexpr uint32_t tokens = 64;
		cxl_kv_options connect{};
		cxl_kv_geometry geometry{};
		connect.size = sizeof(connect);
		connect.name = "cxl-kv replay";
		geometry.nr_slots = geometry.nr_layers = geometry.nr_kv_heads = 1;
		geometry.elem_bytes = 2;
		geometry.tokens_per_block = tokens;
		geometry.head_dim =
			static_cast<uint32_t>(options_.block_KiB << 10) / (2 * 2 * tokens);
		geometry.block_bytes = static_cast<uint32_t>(options_.block_KiB << 10);
		geometry.tokens_per_slot = tokens * std::max(trace_.nr_unique(), 1u);
		int rc = cxl_kv_open(&connect, &kv_);
		if (!rc)
			rc = cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_);
		return rc ? rc : cxl_kv_session_open(arena_, 0, nullptr);
	}

	/* 0 or a negative errno that ends the replay. */
	int play(const sim::Request &request)
	{
		const auto begin = Clock::now();
		std::vector<uint32_t> blocks(request.blocks.begin(), request.blocks.end());
		std::ranges::sort(blocks);
		blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());

		counts.requests++;
		std::vector<cxl_kv_range> ranges = runs(blocks, false), unmade = runs(blocks, true);
		if (int rc = make(unmade))
			return given_up(rc);
		if (int rc = lease(ranges, blocks.size() - count(unmade)))
			return given_up(rc);
		counts.wait_ns.add(static_cast<uint64_t>(seconds_since(begin) * 1e9));
		cxl_kv_hint_position(arena_, 0, request.number + 1);
		for (uint32_t block : blocks) {
			use(block);
			cxl_kv_hint_score(arena_, 0, 0, block, 1.0f);
		}
		return in_parts(ranges, [&](const cxl_kv_range *at, size_t nr) {
			return cxl_kv_unlease(arena_, at, nr);
		});
	}

	Counts counts;

private:
	static uint64_t count(const std::vector<cxl_kv_range> &ranges)
	{
		uint64_t nr = 0;
		for (const cxl_kv_range &range : ranges)
			nr += range.nr_blocks;
		return nr;
	}

	/* Adjacent blocks as ranges; of those that were never made, or of all. */
	[[nodiscard]] std::vector<cxl_kv_range> runs(const std::vector<uint32_t> &blocks,
						     bool unmade) const
	{
		std::vector<cxl_kv_range> out;
		for (uint32_t block : blocks) {
			if (unmade && known_[block])
				continue;
			if (!out.empty() && out.back().block + out.back().nr_blocks == block)
				out.back().nr_blocks++;
			else
				out.push_back({0, 0, block, 1});
		}
		return out;
	}

	template <typename Call>
	static int in_parts(const std::vector<cxl_kv_range> &ranges, Call call)
	{
		int rc = 0;
		for (size_t i = 0; i < ranges.size() && !rc; i += CXL_KV_MAX_RANGES)
			rc = call(&ranges[i],
				  std::min<size_t>(ranges.size() - i, CXL_KV_MAX_RANGES));
		return rc;
	}

	int make(const std::vector<cxl_kv_range> &ranges)
	{
		return in_parts(ranges, [&](const cxl_kv_range *at, size_t nr) {
			int rc = cxl_kv_make(arena_, at, nr, timeout());
			for (size_t i = 0; i < nr && !rc; i++) {
				counts.made += at[i].nr_blocks;
				for (uint32_t b = 0; b < at[i].nr_blocks; b++)
					known_[at[i].block + b] = 1; /* made, not written yet */
			}
			return rc;
		});
	}

	/* nr_old of the blocks existed before this request: hits and restored tell of these. */
	int lease(const std::vector<cxl_kv_range> &ranges, uint64_t nr_old)
	{
		const uint64_t nr_new = count(ranges) - nr_old;
		std::vector<cxl_kv_range> got;
		uint64_t resident = 0;
		int rc = in_parts(ranges, [&](const cxl_kv_range *at, size_t nr) {
			uint64_t hits = 0;
			int result = cxl_kv_lease(arena_, at, nr, timeout(), &hits);
			/* A miss: what is lost is made again, and more may turn out to be lost. */
			for (int tries = 0; result == -EIO && tries < 64; tries++)
				result = renew(at, nr)
						 ?: cxl_kv_lease(arena_, at, nr, timeout(), &hits);
			if (!result) {
				resident += hits;
				got.insert(got.end(), at, at + nr);
			}
			return result;
		});
		if (rc) {
			in_parts(got, [&](const cxl_kv_range *at, size_t nr) {
				return cxl_kv_unlease(arena_, at, nr);
			});
			return rc;
		}
		uint64_t hits = resident - std::min(resident, nr_new);
		counts.hits += std::min(hits, nr_old);
		counts.restored += nr_old - std::min(hits, nr_old);
		return 0;
	}

	int renew(const cxl_kv_range *ranges, size_t nr)
	{
		for (size_t i = 0; i < nr; i++)
			for (uint32_t b = ranges[i].block;
			     b < ranges[i].block + ranges[i].nr_blocks; b++)
				if ((cxl_kv_block_word(arena_, 0, 0, b) & CXL_KV_WORD_STATE_MASK) ==
				    CXL_KV_LOST) {
					counts.lost++;
					known_[b] = 1;
				}
		return cxl_kv_make(arena_, ranges, nr, timeout());
	}

	/* Writes a block that is new, checks one that is not. */
	void use(uint32_t block)
	{
		auto *words = static_cast<uint64_t *>(cxl_kv_block(arena_, 0, 0, block));
		const size_t nr = (options_.block_KiB << 10) / sizeof(uint64_t);
		const uint64_t mark = (uint64_t{block} + 1) * 0x9E3779B97F4A7C15;

		if (known_[block] == 1) {
			std::fill_n(words, nr, mark);
			known_[block] = 2;
			return;
		}
		if (std::any_of(words, words + nr, [&](uint64_t word) { return word != mark; }))
			counts.wrong++;
	}

	int given_up(int rc)
	{
		if (rc != -EBUSY)
			return rc;
		counts.no_room++;
		return 0;
	}
	[[nodiscard]] uint32_t timeout() const
	{
		return static_cast<uint32_t>(options_.timeout_ms);
	}

	const sim::BlockTrace &trace_;
	const ReplayOptions &options_;
	std::vector<uint8_t> known_; /* 0 never made, 1 made, 2 written */
	cxl_kv *kv_ = nullptr;
	cxl_kv_arena *arena_ = nullptr;
};

int play_all(Player &player, const sim::BlockTrace &trace, const ReplayOptions &options)
{
	const auto begin = Clock::now();
	const bool people = isatty(STDERR_FILENO);
	const uint32_t nr = options.nr_requests ? static_cast<uint32_t>(std::min<uint64_t>(
							  options.nr_requests, trace.nr_requests()))
						: trace.nr_requests();
	double shown = 0;
	int rc = 0;

	for (uint32_t i = 0; i < nr && !rc && !interrupted; i++) {
		const sim::Request request = trace.request(i);
		if (options.speed > 0) {
			double at =
				static_cast<double>(request.time_ms - trace.request(0).time_ms) /
				1000 / options.speed;
			double wait = at - seconds_since(begin);
			if (wait > 0) /* ends early at Ctrl-C */
				usleep(static_cast<useconds_t>(std::min(wait, 3600.0) * 1e6));
		}
		rc = player.play(request);
		if (people && seconds_since(begin) - shown > 0.5) {
			shown = seconds_since(begin);
			fmt::print(stderr, "\r\033[K{} of {} requests", i + 1, nr);
		}
	}
	if (people)
		fmt::print(stderr, "\r\033[K");
	return rc;
}

void show(const Counts &counts, uint64_t block_bytes, bool as_json)
{
	if (as_json)
		return fmt::print("{}\n",
				  json_text({{"requests", counts.requests},
					     {"no_room", counts.no_room},
					     {"blocks",
					      {{"bytes", block_bytes},
					       {"made", counts.made},
					       {"hits", counts.hits},
					       {"restored", counts.restored},
					       {"lost", counts.lost},
					       {"wrong", counts.wrong}}},
					     {"wait_p50_ns", counts.wait_ns.permille(500)},
					     {"wait_p99_ns", counts.wait_ns.permille(990)}}));
	const uint64_t used = counts.hits + counts.restored;
	fmt::print("{} requests; {} found no room in time\n", counts.requests, counts.no_room);
	fmt::print("blocks of {}: {} made; used again {}: {} in memory, {} brought back\n",
		   human_bytes(block_bytes), human_count(counts.made), human_count(used),
		   human_share(counts.hits, used), human_count(counts.restored));
	fmt::print("a request waited p50 {}, p99 {}\n", human_ns(counts.wait_ns.permille(500)),
		   human_ns(counts.wait_ns.permille(990)));
	fmt::print("{} lost and made again, {} with wrong bytes\n", human_count(counts.lost),
		   human_count(counts.wrong));
}

} // namespace

int cmd_replay(int argc, char **argv)
{
	ReplayOptions options;
	std::vector<std::string> words;
	Args args("replay",
		  "Plays a trace of requests (as `cxl-kv sim` reads them) to the running daemon as "
		  "an engine would:\nmakes each block at its first use, leases the blocks of a "
		  "request, checks their bytes, gives\nthem back. Exit status 1 when a byte was "
		  "wrong.");
	args.number('b', "block", "KiB", options.block_KiB, {4, 1024},
		    "bytes of a block (16), a power of two");
	args.number('n', "requests", "N", options.nr_requests, {1, 4294967295.0},
		    "only so many (all)");
	args.number('s', "speed", "TIMES", options.speed, {0.001, 1e6},
		    "of the trace's own pace (as fast as it goes)");
	args.number(0, "timeout", "MS", options.timeout_ms, {1, 3600000},
		    "longest wait for room (10000)");
	args.flag('j', "json", options.as_json, "print the counts as one line of JSON");
	args.words("TRACE", words, 1, 1);
	if (auto exit = args.parse(argc, argv))
		return *exit;
	if (options.block_KiB & (options.block_KiB - 1))
		return args.wrong("--block: has to be a power of two (KiB)");

	auto text = sim::read_trace_file(words[0]);
	auto trace = text ? sim::parse_block_trace(*text) : Result<sim::BlockTrace>(text.error());
	if (!trace) {
		fmt::print(stderr, "cxl-kv replay: {}\n",
			   text ? trace.error().in(words[0]).what : text.error().what);
		return kExitFailure;
	}
	struct sigaction on_interrupt {};
	on_interrupt.sa_handler = [](int) { interrupted = 1; };
	sigaction(SIGINT, &on_interrupt, nullptr);
	Player player(*trace, options);
	int rc = player.begin();
	if (rc == -ENOENT || rc == -ECONNREFUSED)
		return complain(error(-rc, "no daemon"));
	if (!rc)
		rc = play_all(player, *trace, options);
	if (rc) {
		fmt::print(stderr, "cxl-kv replay: {}\n", strerror(-rc));
		return kExitFailure;
	}
	show(player.counts, options.block_KiB << 10, options.as_json);
	return player.counts.wrong ? kExitFailure : kExitOk;
}

} // namespace cxlkv
