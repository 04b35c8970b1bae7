/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the policy costs, each beside its bound or a peer on the same data in
 * the same run: Google Benchmark's table first, then a line for each ratio. The
 * arena is that of a model of Llama-70B's shape with sessions of 250,000 tokens
 * in blocks of 16, which makes ten million blocks a session.
 */
#include "core/planner.h"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <map>
#include <queue>
#include <random>

using namespace cxlkv;

namespace {

constexpr uint32_t nr_heads = 640, blocks_per_head = 15'625;
constexpr uint32_t slot_blocks = nr_heads * blocks_per_head;
constexpr uint32_t one_percent = slot_blocks / 100;
constexpr uint32_t block_bytes = 8192;

/* The keys of a peer that sorts. */
struct Scored {
	float priority;
	uint32_t block;
};

Geometry geometry(uint32_t nr_slots)
{
	Geometry g;
	g.nr_slots = nr_slots;
	g.nr_layers = 80;
	g.nr_kv_heads = 8;
	g.head_dim = 128;
	g.elem_bytes = 2;
	g.tokens_per_block = 16;
	g.tokens_per_slot = blocks_per_head * 16;
	g.block_bytes = block_bytes;
	g.layer_window.assign(g.nr_layers, 0);
	return g;
}

/* An arena whose blocks are all hot, and the policy at its defaults but where said. */
class Host {
public:
	explicit Host(uint32_t nr_slots, const PolicyOptions &options = {})
	    : options_(options), nr_blocks_(nr_slots * slot_blocks)
	{
		arenas_[0] = std::make_unique<ArenaState>(0, geometry(nr_slots), options_, clock_,
							  counters_);
		arena().moved(0, nr_blocks_, Where::Hot, now_ms_);
	}

	ArenaState &arena() { return *arenas_[0]; }

	void step()
	{
		now_ms_ += 1000;
		cxl_kv_hint hint = {};
		hint.kind = CXL_KV_HINT_POSITION;
		arena().hint(hint, now_ms_);
	}

	/* Each head has this attention on each of its blocks: a hint a head. */
	void score_all(double mass)
	{
		for (uint32_t block = 0; block < nr_blocks_; block += blocks_per_head)
			score(block, blocks_per_head, mass);
	}

	/* Accesses to single blocks: a hint each, of any of the first heads of all sessions. */
	void score_some(uint32_t nr, uint32_t of_heads = nr_heads)
	{
		for (uint32_t i = 0; i < nr; i++) {
			uint32_t slot =
				static_cast<uint32_t>(random_() % (nr_blocks_ / slot_blocks));
			uint32_t block =
				static_cast<uint32_t>(random_() % (of_heads * blocks_per_head));
			score(slot * slot_blocks + block, 1,
			      0.02 + static_cast<double>(random_() % 1000) / 1100);
		}
	}

	/* A plan that orders nr blocks out of hot. */
	std::vector<Order> plan(uint32_t nr)
	{
		PlanInput input;
		input.now_ms = now_ms_;
		input.hot.used_bytes = uint64_t{nr_blocks_} * block_bytes;
		input.hot.limit_bytes = input.hot.high_bytes = input.hot.low_bytes =
			input.hot.used_bytes - uint64_t{nr} * block_bytes;
		input.spill_budget_bytes = UINT64_MAX;
		return Planner(arenas_, options_, counters_, input).run();
	}

	/* The blocks that a plan would look at first. */
	std::vector<uint32_t> choose(uint32_t nr)
	{
		struct First {
			uint32_t nr;
			std::vector<uint32_t> blocks;
			void visit_soon(uint32_t) {}
			void visit(uint32_t block) { blocks.push_back(block); }
			[[nodiscard]] bool more() const { return blocks.size() < nr; }
			[[nodiscard]] bool enough() const { return blocks.size() >= nr; }
		} first{nr, {}};
		first.blocks.reserve(nr + 64);
		arena().scan(Where::Hot, VictimQueue::Normal, first);
		first.blocks.resize(std::min<size_t>(nr, first.blocks.size()));
		return first.blocks;
	}

	/* Spilled, and back as new blocks: there are as many as before. */
	void replace(uint32_t first, uint32_t nr)
	{
		for (Where where : {Where::Cold, Where::Empty, Where::Hot})
			arena().moved(first, nr, where, now_ms_);
	}
	uint64_t replace(const std::vector<Order> &orders)
	{
		uint64_t nr = 0;
		for (const Order &order : orders) {
			replace(order.extent.first, order.extent.nr);
			nr += order.extent.nr;
		}
		return nr;
	}

	/* Some hundred steps of service. */
	void age(uint32_t of_heads = nr_heads)
	{
		for (int i = 0; i < 200; i++) {
			step();
			score_some(one_percent, of_heads);
			replace(plan(one_percent));
		}
	}

	std::vector<Scored> priorities()
	{
		std::vector<Scored> all(nr_blocks_);
		for (uint32_t b = 0; b < nr_blocks_; b++)
			all[b] = {static_cast<float>(arena().priority(b)), b};
		return all;
	}

private:
	void score(uint32_t block, uint32_t nr, double mass)
	{
		cxl_kv_hint hint = {};
		hint.kind = CXL_KV_HINT_SCORE;
		hint.slot = block / slot_blocks;
		hint.head = block / blocks_per_head % nr_heads;
		hint.block = block % blocks_per_head;
		hint.nr_blocks = nr;
		hint.score = static_cast<uint16_t>(mass * CXL_KV_SCORE_ONE);
		arena().hint(hint, now_ms_);
	}

	PolicyOptions options_;
	StepClock clock_;
	SessionCounters counters_;
	Arenas arenas_;
	uint32_t nr_blocks_;
	uint64_t now_ms_ = 1'000'000;
	std::mt19937 random_{1};
};

/* ---- EMA: every block gets a score ---- */

void ema_tick(benchmark::State &state, double mass)
{
	Host host(1);
	for (auto _ : state) {
		host.step();
		host.score_all(mass);
	}
}

/* The bound: STREAM's scale over a score and a step of each block, both read and written. */
void stream_scores(benchmark::State &state)
{
	std::vector<float> ema(slot_blocks, 1);
	std::vector<uint32_t> scored(slot_blocks, 1);
	float factor = 0.8f;
	for (auto _ : state) {
		benchmark::DoNotOptimize(factor);
		for (uint32_t i = 0; i < slot_blocks; i++) {
			ema[i] *= factor;
			scored[i] += 1;
		}
		benchmark::ClobberMemory();
	}
}

/* ---- victims ---- */

void choose(benchmark::State &state)
{
	Host host(1);
	host.age();
	for (auto _ : state) {
		state.PauseTiming();
		host.step();
		host.score_some(one_percent);
		state.ResumeTiming();
		std::vector<uint32_t> chosen = host.choose(one_percent);
		state.PauseTiming();
		for (uint32_t block : chosen)
			host.replace(block, 1);
		if (chosen.size() != one_percent)
			state.SkipWithError("not as many as asked for");
		state.ResumeTiming();
	}
}

/* The peer: priorities are already computed, and stand beside their blocks. */
void nth_element(benchmark::State &state)
{
	std::vector<Scored> all, work;
	{
		Host host(1);
		host.age();
		all = host.priorities();
	}
	for (auto _ : state) {
		state.PauseTiming();
		work = all;
		state.ResumeTiming();
		std::nth_element(
			work.begin(), work.begin() + one_percent, work.end(),
			[](const Scored &a, const Scored &b) { return a.priority > b.priority; });
		benchmark::DoNotOptimize(work.data());
	}
}

/* Plans that take 1 % of the blocks, each after scores of so many heads have changed. */
void plan_again(benchmark::State &state, Host &host, uint32_t of_heads)
{
	for (auto _ : state) {
		state.PauseTiming();
		host.step();
		host.score_some(one_percent, of_heads);
		state.ResumeTiming();
		std::vector<Order> orders = host.plan(one_percent);
		state.PauseTiming();
		if (host.replace(orders) != one_percent)
			state.SkipWithError("not as many as asked for");
		state.ResumeTiming();
	}
}

/* Hints, learning, the choice by exact priority, extents, orders. */
void plan(benchmark::State &state)
{
	Host host(1);
	host.age();
	plan_again(state, host, nr_heads);
}

/* The peer: all priorities, the highest of them, those in order of their blocks. */
void plan_by_sorting(benchmark::State &state)
{
	Host host(1);
	host.age();
	for (auto _ : state) {
		std::vector<Scored> all = host.priorities();
		auto end = all.begin() + one_percent;
		std::nth_element(all.begin(), end, all.end(), [](const Scored &a, const Scored &b) {
			return a.priority > b.priority;
		});
		std::sort(all.begin(), end,
			  [](const Scored &a, const Scored &b) { return a.block < b.block; });
		benchmark::DoNotOptimize(all.data());
	}
}

/* ---- budgets: half of the heads are no longer used, and room goes to the others ---- */

void rebalance(benchmark::State &state)
{
	PolicyOptions options;
	options.head_floor = 0.5;
	Host host(1, options);
	host.age();
	plan_again(state, host, nr_heads / 2);
}

/* The peer: each head's blocks are cut to a budget of its own. */
void rebalance_each_head(benchmark::State &state)
{
	Host host(1);
	host.age();
	for (auto _ : state) {
		std::vector<Scored> all = host.priorities();
		for (auto head = all.begin(); head != all.end(); head += blocks_per_head)
			std::nth_element(head, head + blocks_per_head / 100, head + blocks_per_head,
					 [](const Scored &a, const Scored &b) {
						 return a.priority > b.priority;
					 });
		benchmark::DoNotOptimize(all.data());
	}
}

/* ---- prefetch: demand fetches queue their neighbours and the next layers ---- */

constexpr uint32_t nr_fetched = 512;

/* Blocks of the first layers, far enough apart to have neighbours of their own. */
uint32_t fetched(uint32_t i)
{
	return i * (40 * 8 * blocks_per_head / nr_fetched);
}

void prefetch(benchmark::State &state)
{
	Host host(1);
	ArenaState &arena = host.arena();
	arena.moved(0, slot_blocks, Where::Cold, 0);
	for (auto _ : state) {
		host.step();
		for (uint32_t i = 0; i < nr_fetched; i++)
			arena.moved(fetched(i), 1, Where::Hot, 0); /* unasked */
		size_t nr = 0;
		std::vector<Order> orders = host.plan(0);
		state.PauseTiming();
		for (const Order &order : orders)
			nr += order.extent.nr;
		arena.moved(0, slot_blocks, Where::Cold, 0);
		state.ResumeTiming();
		benchmark::DoNotOptimize(nr);
	}
}

/* The peer: a heap of as many wishes, all of which are taken off again. */
void prefetch_heap(benchmark::State &state)
{
	uint32_t reach = PolicyOptions().prefetch_window_tokens / 16;
	for (auto _ : state) {
		std::priority_queue<std::pair<float, uint32_t>> wishes;
		for (uint32_t i = 0; i < nr_fetched; i++)
			for (uint32_t d = 1; d <= reach; d++)
				for (uint32_t block : {fetched(i) + d, fetched(i) - d})
					wishes.push({static_cast<float>(prefetch_priority(16 * d)),
						     block});
		uint32_t sum = 0;
		for (; !wishes.empty(); wishes.pop())
			sum += wishes.top().second;
		benchmark::DoNotOptimize(sum);
	}
}

/* ---- a tick in which little of much is touched ---- */

void tick(benchmark::State &state, uint32_t nr_slots)
{
	Host host(nr_slots);
	host.age();
	for (auto _ : state) {
		host.step();
		host.score_some(one_percent);
		std::vector<Order> orders = host.plan(one_percent / 100);
		state.PauseTiming();
		host.replace(orders);
		state.ResumeTiming();
	}
}

/* Remembers what was measured, by name. */
class Reporter : public benchmark::ConsoleReporter {
public:
	void ReportRuns(const std::vector<Run> &runs) override
	{
		ConsoleReporter::ReportRuns(runs);
		for (const Run &run : runs)
			if (!run.error_occurred)
				ms_[run.run_name.function_name] = run.GetAdjustedCPUTime();
	}

	/* a/b, and whether it keeps a limit; 0 is no limit. */
	void ratio(const char *what, const char *a, const char *b, double limit,
		   bool at_least) const
	{
		if (!ms_.count(a) || !ms_.count(b))
			return;
		double value = ms_.at(a) / ms_.at(b);
		bool kept = at_least ? value >= limit : value <= limit;
		fmt::print("{:<78} {:5.2f}", what, value);
		if (limit > 0)
			fmt::print("   at {} {}: {}", at_least ? "least" : "most", limit,
				   kept ? "ok" : "MISSED");
		fmt::print("\n");
	}

private:
	std::map<std::string, double> ms_;
};

template <typename F> void add(const char *name, F run, int iterations)
{
	benchmark::RegisterBenchmark(name, run)
		->Unit(benchmark::kMillisecond)
		->Iterations(iterations);
}

} // namespace

int main(int argc, char **argv)
{
	benchmark::Initialize(&argc, argv);
	if (benchmark::ReportUnrecognizedArguments(argc, argv))
		return 2;
	add(
		"ema_tick", [](auto &state) { ema_tick(state, 1.0 / blocks_per_head); }, 50);
	add(
		"ema_tick_accessed", [](auto &state) { ema_tick(state, 0.5); }, 20);
	add("stream_scores", stream_scores, 50);
	add("choose", choose, 20);
	add("nth_element", nth_element, 20);
	add("plan", plan, 20);
	add("plan_by_sorting", plan_by_sorting, 5);
	add("rebalance", rebalance, 20);
	add("rebalance_each_head", rebalance_each_head, 5);
	add("prefetch", prefetch, 10);
	add("prefetch_heap", prefetch_heap, 10);
	add(
		"tick_10M", [](auto &state) { tick(state, 1); }, 20);
	add(
		"tick_100M", [](auto &state) { tick(state, 10); }, 20);
	Reporter reporter;
	benchmark::RunSpecifiedBenchmarks(&reporter);

	fmt::print("\nratios of CPU time, 10 million blocks where nothing else is said:\n");
	reporter.ratio("EMA tick, part of the speed of memory (STREAM scale of scores and steps)",
		       "stream_scores", "ema_tick", 0.5, true);
	reporter.ratio("choosing 1 % victims after 1 % of the scores changed, to std::nth_element",
		       "choose", "nth_element", 0.3, false);
	reporter.ratio("tick with 100,000 blocks of 100 million touched, to one of 10 million",
		       "tick_100M", "tick_10M", 1.5, false);
	reporter.ratio("EMA tick that counts as an access of every block, part of that speed",
		       "stream_scores", "ema_tick_accessed", 0, true);
	reporter.ratio("plan of 1 % victims, to priorities, std::nth_element and std::sort", "plan",
		       "plan_by_sorting", 0, false);
	reporter.ratio("budgets from half of the heads to the others, to std::nth_element of each",
		       "rebalance", "rebalance_each_head", 0, false);
	reporter.ratio(
		"prefetch of 512 fetched blocks' neighbours and layers, to a std heap of them",
		"prefetch", "prefetch_heap", 0, false);
	benchmark::Shutdown();
	return 0;
}
