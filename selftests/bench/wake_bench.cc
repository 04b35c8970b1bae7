// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A parked conversation comes back, or is computed again by the same engine:
 *
 *	wake_bench [cold|warm] [CASES]
 *
 * starts a daemon whose parked sessions sink to that tier, prints both times for
 * 2,048 tokens with their ratio, and then, in CASES cases of random length, asks
 * cxl_kv_decide() with margin 1 and measures both ways five times. CASES 0: only
 * the first. Exit status 1: decide was wrong in more than 5 % of the cases where
 * one way took 10 % longer than the other or more. Needs root, for the daemon.
 */
#include "engine/decoder.h"
#include "engine/text.h"
#include "lib/daemon_process.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cxl_kv.h>
#include <fmt/format.h>
#include <random>
#include <thread>

using namespace cxlkv;
using namespace cxlkv::engine;

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kContext = 2048, kTimeoutMs = 20000;

double since(Clock::time_point begin)
{
	return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void die(const std::string &what)
{
	fmt::print(stderr, "wake_bench: {}\n", what);
	exit(1);
}

void check(int rc, const char *what)
{
	if (rc < 0)
		die(fmt::format("{}: {}", what, strerror(-rc)));
}

class Bench {
public:
	Bench(const Model &model, const KvShape &shape, const Text &text, cxl_kv_state parked,
	      const std::string &socket)
	    : shape_(shape), text_(text), decoder_(model, shape), parked_(parked)
	{
		cxl_kv_options options{};
		options.size = sizeof(options);
		options.socket_path = socket.c_str();
		check(cxl_kv_open(&options, &kv_), "connect");
		const cxl_kv_geometry g = arena_geometry(shape, 2);
		check(cxl_kv_arena_create(kv_, &g, nullptr, &arena_), "arena");
	}
	~Bench() { cxl_kv_close(kv_); }

	/* Makes room, and computes the first tokens of the text there. */
	double compute(uint32_t nr)
	{
		const auto begin = Clock::now();
		auto all = ranges(nr);
		check(cxl_kv_session_open(arena_, 0, nullptr), "open");
		check(cxl_kv_make(arena_, all.data(), all.size(), kTimeoutMs), "make");
		check(cxl_kv_lease(arena_, all.data(), all.size(), kTimeoutMs, nullptr), "lease");
		decoder_.forward(std::span(text_).first(nr), 0,
				 static_cast<std::byte *>(cxl_kv_block(arena_, 0, 0, 0)), nullptr);
		check(cxl_kv_unlease(arena_, all.data(), all.size()), "unlease");
		return since(begin);
	}

	/* Parks it and waits until its age has sent it away. */
	void send_away(uint32_t nr)
	{
		check(cxl_kv_session_park(arena_, 0), "park");
		const auto begin = Clock::now();
		while (since(begin) < 20) {
			if (all_away(nr))
				return;
			std::this_thread::sleep_for(std::chrono::milliseconds(2));
		}
		die("a parked session does not leave its tier");
	}

	/* Until its blocks are leased. */
	double fetch(uint32_t nr)
	{
		const auto begin = Clock::now();
		auto all = ranges(nr);
		check(cxl_kv_session_wake(arena_, 0, kTimeoutMs, nullptr), "wake");
		check(cxl_kv_lease(arena_, all.data(), all.size(), kTimeoutMs, nullptr), "lease");
		const double seconds = since(begin);
		check(cxl_kv_unlease(arena_, all.data(), all.size()), "unlease");
		return seconds;
	}

	cxl_kv_decision decide(uint32_t nr, double tokens_per_s)
	{
		cxl_kv_decide_args args{};
		cxl_kv_decision decision{};
		args.size = sizeof(args);
		args.margin = 1; /* whenever it is faster: the default asks for three times */
		args.tokens = nr;
		args.prefill_tokens_per_s = tokens_per_s;
		args.return_probability = 1;
		check(cxl_kv_decide(arena_, &args, &decision), "decide");
		return decision;
	}

	void close() { check(cxl_kv_session_close(arena_, 0), "close"); }

private:
	[[nodiscard]] std::vector<cxl_kv_range> ranges(uint32_t nr) const
	{
		std::vector<cxl_kv_range> all;
		for (uint32_t head = 0; head < shape_.heads; head++)
			all.push_back({0, head, 0, shape_.blocks_for(nr)});
		return all;
	}

	[[nodiscard]] bool all_away(uint32_t nr) const
	{
		for (uint32_t head = 0; head < shape_.heads; head++)
			for (uint32_t b = 0; b < shape_.blocks_for(nr); b++) {
				uint64_t word = cxl_kv_block_word(arena_, 0, head, b);
				bool warm = word & CXL_KV_WORD_TIER_MASK;
				if (parked_ == CXL_KV_COLD
					    ? (word & CXL_KV_WORD_STATE_MASK) != CXL_KV_COLD
					    : !warm)
					return false;
			}
		return true;
	}

	KvShape shape_;
	const Text &text_;
	Decoder decoder_;
	cxl_kv_state parked_;
	cxl_kv *kv_ = nullptr;
	cxl_kv_arena *arena_ = nullptr;
};

/*
 * seconds = fixed + a n + b n^2: a session that is opened and has its blocks made costs
 * something, and what a token costs grows with those before it. Measured at the start; how
 * busy the machine is changes, so what came since scales it.
 */
struct PrefillModel {
	double fixed = 0, a = 0, b = 0, scale = 1;

	/* Of 1 token, and of n1 and n2. */
	PrefillModel(double s, double n1, double s1, double n2, double s2)
	{
		fixed = std::max(0.0, s - (s1 - s) / (n1 - 1));
		s1 -= fixed;
		s2 -= fixed;
		b = std::max(0.0, (s2 / n2 - s1 / n1) / (n2 - n1));
		a = s1 / n1 - b * n1;
	}
	[[nodiscard]] double tokens_per_s(double n) const
	{
		return n / (scale * (fixed + a * n + b * n * n));
	}
	/* What n tokens took just now; none counts for more than twice as slow. */
	void learn(double n, double seconds)
	{
		scale *= 1 + (std::min(seconds * tokens_per_s(n) / n, 2.0) - 1) / 4;
	}
};

double median(std::vector<double> values)
{
	std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
	return values[values.size() / 2];
}

void show_whole(Bench &bench, const char *tier, int nr_times)
{
	std::vector<double> computed, fetched;
	for (int i = 0; i < nr_times; i++) {
		computed.push_back(bench.compute(kContext));
		bench.send_away(kContext);
		fetched.push_back(bench.fetch(kContext));
		bench.close();
	}
	const double recompute = median(computed), fetch = median(fetched);
	fmt::print(
		"{} tokens: recompute {:.2f} ms (prefill {:.0f} tokens/s), wake from {} {:.2f} ms: "
		"{:.1f} times faster\n",
		kContext, recompute * 1e3, kContext / recompute, tier, fetch * 1e3,
		recompute / fetch);
}

int show_decisions(Bench &bench, uint32_t nr_cases)
{
	auto timed = [&](uint32_t nr) {
		std::vector<double> times;
		for (int i = 0; i < 5; i++) { /* as in the cases: after the same rest */
			times.push_back(bench.compute(nr));
			bench.send_away(nr);
			bench.close();
		}
		return median(times);
	};
	PrefillModel prefill(timed(1), 64, timed(64), kContext, timed(kContext));
	std::mt19937_64 random(1);
	uint32_t nr_clear = 0, nr_right = 0, nr_fetch = 0;
	for (uint32_t i = 0; i < nr_cases; i++) {
		/* Log-uniform from 1 to the context: as many short ones as long ones. */
		const double u = static_cast<double>(random() % 100001) / 100000;
		const auto nr = static_cast<uint32_t>(std::pow(kContext, u));
		std::vector<double> computed, fetched;
		cxl_kv_decision decision{};
		for (int j = 0; j < 5; j++) {
			computed.push_back(bench.compute(nr));
			bench.send_away(nr);
			if (!j)
				decision = bench.decide(nr, prefill.tokens_per_s(nr));
			fetched.push_back(bench.fetch(nr));
			bench.close();
		}
		const double recompute = median(computed), fetch = median(fetched);
		prefill.learn(nr, recompute);
		const bool says_fetch = decision.verdict == CXL_KV_FETCH;
		nr_fetch += fetch < recompute;
		if (std::max(fetch, recompute) < 1.1 * std::min(fetch, recompute))
			continue;
		nr_clear++;
		if (says_fetch == (fetch < recompute)) {
			nr_right++;
			continue;
		}
		fmt::print("wrong: {} tokens: fetch {:.3f} ms, said {:.3f}; recompute {:.3f} ms, "
			   "said {:.3f}\n",
			   nr, fetch * 1e3, static_cast<double>(decision.fetch_ns) / 1e6,
			   recompute * 1e3, static_cast<double>(decision.recompute_ns) / 1e6);
	}
	fmt::print("decide, margin 1: right in {} of {} cases that differ by 10 % or more ({:.1f} "
		   "%); of {} "
		   "cases the fetch was faster in {}\n",
		   nr_right, nr_clear, 100.0 * nr_right / std::max(nr_clear, 1u), nr_cases,
		   nr_fetch);
	return nr_right * 100 >= nr_clear * 95 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
	const std::string tier = argc > 1 ? argv[1] : "cold";
	const auto nr_cases = static_cast<uint32_t>(argc > 2 ? atoi(argv[2]) : 200);
	const std::string dir = "selftests/engine/model/";
	if (tier != "cold" && tier != "warm")
		die("usage: wake_bench [cold|warm] [CASES]");
	auto model = Model::load(dir + "tiny-llama.bin");
	auto text = read_text(dir + "heldout.txt");
	if (!model || !text)
		die("run it in the top folder of the tree");
	auto shape = KvShape::create(model->shape, 128, kContext, KvType::F16);
	if (!shape)
		die(shape.error().what);

	const bool cold = tier == "cold";
	DaemonProcess daemon({"HOT__LIMIT=64MiB", "COLD__SIZE=256MiB", "DAEMON__INTERVAL_MS=5",
			      "SESSION__IDLE_MS=20", "SESSION__RESUME_MS=5",
			      "SESSION__MIN_RESIDENCY_MS=0", "POLICY__MIN_RESIDENCY_MS=0",
			      cold ? "SESSION__WARM_MS=0" : "SESSION__WARM_MS=40",
			      cold ? "SESSION__COLD_MS=40" : "SESSION__COLD_MS=0"});
	daemon.start();
	Bench bench(*model, *shape, *text, cold ? CXL_KV_COLD : CXL_KV_RESIDENT, daemon.socket());
	/* Alone, it is for guests, where each time takes a minute. */
	show_whole(bench, tier.c_str(), nr_cases ? 7 : 3);
	return nr_cases ? show_decisions(bench, nr_cases) : 0;
}
