/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads KV memory as engines do, checks every byte it reads, and says from which
 * node each read was served. It tiers nothing: who does is the question. JSON on
 * stdout, a line for each pattern as it ends.
 *
 * Time goes in slices of 5 ms, and after each one the translations of this
 * process are flushed, which an emulator needs before it sets accessed bits
 * again; real processors lose theirs in about that time. The thread spins until
 * a slice is over: engines do not sleep while they decode, and the kernel scans
 * a process the faster the more it runs.
 */
#include "peers/accounts.h"
#include "peers/counters.h"
#include "peers/judge.h"
#include "peers/memory.h"
#include "peers/patterns.h"
#include "peers/places.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <thread>

using namespace cxlkv;
using namespace cxlkv::peers;
using nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t page_bytes = 4096, line_bytes = 64, words_of_line = line_bytes / 8;
constexpr uint32_t pages_of_block = Shape::block_bytes / page_bytes;
constexpr uint32_t slices = 200; /* of an interval */
constexpr uint32_t samples = 2;  /* of what the daemon counts, an interval */
constexpr uint32_t settles = 3;  /* intervals in which nobody reads what was just made */
/* Of what is read from hot and from warm memory: the project's model, not a measurement. */
constexpr double model_hot_ns = 100, model_warm_ns = 200;

struct Options {
	std::string memory = "plain", oracle, status;
	std::vector<std::string> patterns;
	uint64_t seed = 1, hot_bytes = 24u << 20;
	uint32_t interval_ms = 1000;
	int hot_node = 0;
};

/* Word i of page p: no two words of an arena are alike. */
uint64_t expected(uint64_t seed, uint64_t page, uint64_t word)
{
	uint64_t x = seed ^ (page << 9 | word);

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	return x ^ x >> 32;
}

/* Pages whose permission is taken away: more than 33, and the kernel flushes everything. */
class TlbFlush {
public:
	TlbFlush()
	    : at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))
	{
	}
	~TlbFlush() { munmap(at_, bytes); }
	void operator()() const
	{
		mprotect(at_, bytes, PROT_READ);
		mprotect(at_, bytes, PROT_READ | PROT_WRITE);
	}

private:
	static constexpr size_t bytes = 64 * page_bytes;
	void *const at_;
};

class Driver {
public:
	Driver(const Options &options, const PatternKind &kind)
	    : options_(options), kind_(kind), pattern_(kind.make(options.seed, options.hot_bytes)),
	      shape_(pattern_->shape())
	{
	}

	Result<json> run();

private:
	Result<> make(const std::vector<Run> &runs);
	Result<> begin(const Interval &interval);
	Result<> run_interval(const Interval &interval);
	Result<> look();
	void read_block(uint32_t block);
	void write_oracle(const Interval &interval);
	[[nodiscard]] json result() const;
	[[nodiscard]] json by_numa_maps() const;

	const Options &options_;
	const PatternKind &kind_;
	const std::unique_ptr<Pattern> pattern_;
	const Shape shape_;
	const TlbFlush flush_tlb_{};
	std::unique_ptr<Memory> memory_;
	std::unique_ptr<Places> pages_;
	std::unique_ptr<Judge> judge_;
	std::unique_ptr<Accounts> accounts_; /* of the daemon, if it is one */
	std::vector<Place> places_;
	uint64_t nr_wrong_ = 0, nr_blocks_read_ = 0;
	uint32_t interval_ = 0;
	double reader_s_ = 0; /* that reading and making took, without waiting for the next slice */
	json costs_;
};

Result<> Driver::make(const std::vector<Run> &runs)
{
	for (const Run &run : runs) {
		if (auto made = memory_->make(run); !made)
			return made;
		auto *words = reinterpret_cast<uint64_t *>(
			memory_->base() + uint64_t{run.first} * Shape::block_bytes);
		const uint64_t page = uint64_t{run.first} * pages_of_block;
		for (uint64_t p = 0; p < uint64_t{run.nr} * pages_of_block; p++)
			for (uint64_t w = 0; w < page_bytes / 8; w++)
				*words++ = expected(options_.seed, page + p, w);
	}
	return ok();
}

/* A line of each page, another one each time. */
void Driver::read_block(uint32_t block)
{
	const uint64_t line = nr_blocks_read_++ * 7 % (page_bytes / line_bytes);

	for (uint32_t p = 0; p < pages_of_block; p++) {
		const uint32_t page = block * pages_of_block + p;
		const auto *words = reinterpret_cast<const volatile uint64_t *>(
			memory_->base() + uint64_t{page} * page_bytes + line * line_bytes);
		bool wrong = false;
		for (uint64_t w = 0; w < words_of_line; w++)
			wrong |=
				words[w] != expected(options_.seed, page, line * words_of_line + w);
		nr_wrong_ += wrong;
		judge_->read(page);
	}
}

Result<> Driver::look()
{
	if (auto looked = pages_->look(memory_->base(), places_.size(), places_); !looked)
		return looked;
	judge_->look(places_);
	return ok();
}

Result<> Driver::begin(const Interval &interval)
{
	std::vector<uint32_t> pages;

	for (uint32_t block : interval.hot)
		for (uint32_t p = 0; p < pages_of_block; p++)
			pages.push_back(block * pages_of_block + p);
	judge_->hot_set(pages, interval.jumped);
	write_oracle(interval);
	memory_->begin(interval);
	return make(interval.made);
}

Result<> Driver::run_interval(const Interval &interval)
{
	const auto slice = std::chrono::nanoseconds(options_.interval_ms * 1'000'000ull) / slices;
	auto due = Clock::now();
	size_t next = 0, step = 0, step_begin = 0;

	if (auto begun = begin(interval); !begun)
		return begun;
	for (uint32_t s = 1; s <= slices; s++) {
		const auto begin = Clock::now();
		for (const size_t end = interval.read.size() * s / slices; next < end; next++) {
			read_block(interval.read[next]);
			if (step >= interval.step_ends.size() ||
			    next + 1 < interval.step_ends[step])
				continue;
			memory_->step(interval, &interval.read[step_begin], next + 1 - step_begin);
			step_begin = interval.step_ends[step++];
		}
		reader_s_ += std::chrono::duration<double>(Clock::now() - begin).count();
		due += slice;
		if (interval.read.empty()) {
			std::this_thread::sleep_until(due);
		} else {
			flush_tlb_();
			while (Clock::now() < due)
				;
		}
		if (s % (slices / Judge::looks) == 0)
			if (auto looked = look(); !looked)
				return looked;
		if (accounts_ && s % (slices / samples) == 0)
			accounts_->sample();
	}
	return ok();
}

void Driver::write_oracle(const Interval &interval)
{
	if (options_.oracle.empty())
		return;
	json ranges = json::array();
	for (size_t i = 0, next; i < interval.hot.size(); i = next) {
		for (next = i + 1;
		     next < interval.hot.size() && interval.hot[next] == interval.hot[next - 1] + 1;
		     next++)
			;
		ranges.push_back({interval.hot[i], interval.hot[next - 1]});
	}
	std::ofstream(options_.oracle, std::ios::app)
		<< json{{"pattern", kind_.name}, {"interval", interval_}, {"hot_blocks", ranges}}
		<< "\n";
}

/* Bytes of the memory by node, as the kernel counts them. */
json Driver::by_numa_maps() const
{
	std::ifstream in("/proc/self/numa_maps");
	const std::string at = fmt::format("{:x} ", reinterpret_cast<uintptr_t>(memory_->base()));
	std::string line;
	json bytes = json::object();
	const auto begin = reinterpret_cast<uintptr_t>(memory_->base());

	/* A policy of its own splits a slot off. */
	while (std::getline(in, line)) {
		const uint64_t start = std::stoull(line, nullptr, 16);
		if (start < begin || start >= begin + shape_.bytes())
			continue;
		for (size_t n = line.find(" N"); n != line.npos; n = line.find(" N", n + 1)) {
			int node = 0;
			unsigned long long pages = 0;
			if (sscanf(line.c_str() + n, " N%d=%llu", &node, &pages) == 2) {
				json &sum = bytes[std::to_string(node)];
				sum = (sum.is_null() ? 0 : sum.get<uint64_t>()) +
				      pages * page_bytes;
			}
		}
	}
	return bytes;
}

json ratio(double a, double b)
{
	return b > 0 ? json(a / b) : json();
}

json Driver::result() const
{
	const Verdict v = judge_->verdict();
	const auto reads = static_cast<double>(v.nr_reads),
		   hot = static_cast<double>(v.nr_hot_reads);
	json converged = json::array();
	uint64_t hot_pages = 0, warm_pages = 0;

	for (const auto &intervals : v.converged)
		converged.push_back(intervals ? json(*intervals) : json());
	for (Place place : places_) {
		hot_pages += place == Place::Hot;
		warm_pages += place == Place::Warm;
	}
	return {{"pattern", kind_.name},
		{"intervals", pattern_->nr_intervals()},
		{"what", kind_.what},
		{"steady", kind_.steady},
		{"arena_bytes", shape_.bytes()},
		{"reads", v.nr_reads},
		{"wrong", nr_wrong_},
		{"hot_share", ratio(hot, reads)},
		{"late_hot_share", ratio(static_cast<double>(v.nr_late_hot_reads),
					 static_cast<double>(v.nr_late_reads))},
		{"recall", v.nr_reads ? json(v.recall) : json()},
		{"precision", ratio(static_cast<double>(v.nr_promoted_of_hot_set),
				    static_cast<double>(v.nr_promoted))},
		{"converged_intervals", converged},
		{"promoted_bytes", v.nr_promoted * page_bytes},
		{"demoted_bytes", v.nr_demoted * page_bytes},
		{"moved_per_useful",
		 ratio(static_cast<double>(v.nr_moved()), static_cast<double>(v.nr_useful))},
		{"ping_pong_share",
		 ratio(static_cast<double>(v.nr_ping_pong), static_cast<double>(v.nr_moved()))},
		{"model_ns", ratio(hot * model_hot_ns + (reads - hot) * model_warm_ns, reads)},
		{"hot_bytes", hot_pages * page_bytes},
		{"warm_bytes", warm_pages * page_bytes},
		{"numa_maps_bytes", by_numa_maps()}};
}

Result<json> Driver::run()
{
	auto memory = make_memory(options_.memory == "plain"   ? Kind::Plain
				  : options_.memory == "arena" ? Kind::Arena
							       : Kind::Hints,
				  shape_);
	auto pages = Places::create(options_.hot_node);
	if (!memory || !pages)
		return memory ? pages.error() : memory.error();
	memory_ = std::move(*memory);
	if (!options_.status.empty())
		accounts_ = std::make_unique<Accounts>(options_.status);
	pages_ = std::make_unique<Places>(std::move(*pages));
	const size_t nr_pages = size_t{shape_.nr_blocks()} * pages_of_block;
	if (auto made = make(pattern_->before()); !made)
		return made.error();
	std::this_thread::sleep_for(settles * std::chrono::milliseconds(options_.interval_ms));
	if (auto looked = pages_->look(memory_->base(), nr_pages, places_); !looked)
		return looked.error();
	judge_ = std::make_unique<Judge>(pattern_->nr_intervals(), places_);

	const auto before = vmstat();
	const double others = others_seconds();
	const auto start = Clock::now();
	{
		Syscalls syscalls;
		for (; interval_ < pattern_->nr_intervals(); interval_++)
			if (auto ran = run_interval(pattern_->next()); !ran)
				return ran.error();
		costs_["syscalls"] = syscalls.count() ? json(*syscalls.count()) : json();
	}
	const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
	costs_["cpu_s"] = others_seconds() - others;
	costs_["reader_s"] = reader_s_;
	costs_["interval_ms"] = seconds * 1000 / pattern_->nr_intervals();
	for (const auto &[name, value] : vmstat())
		if (name.starts_with("pgmigrate_") || name.starts_with("pgdemote_") ||
		    name.starts_with("pgpromote_") || name.starts_with("numa_hint"))
			costs_["vmstat"][name] = value - before.at(name);
	json all = result();
	all.update(costs_);
	if (accounts_)
		all.update(accounts_->at_rest([this] { return by_numa_maps(); }));
	return all;
}

/*
 * Bytes that a process gets of the hot node: as much as it has when the kernel has
 * made what room it makes there, so it asks again until it gets no more.
 */
Result<uint64_t> find_room(int hot_node)
{
	constexpr size_t most = 384u << 20, chunk = 256, enough = (16u << 20) / page_bytes;
	auto pages = Places::create(hot_node);
	auto memory = make_memory(Kind::Plain, {1, most / Shape::nr_heads / Shape::block_bytes});
	std::vector<Place> places;
	size_t room = 0, found = chunk, end = 0;

	if (!pages || !memory)
		return pages ? memory.error() : pages.error();
	while (found >= chunk) {
		found = 0;
		for (size_t warm = 0; warm < enough && end < most / page_bytes; end += chunk) {
			std::byte *base = (*memory)->base() + end * page_bytes;
			for (size_t p = 0; p < chunk; p++)
				base[p * page_bytes] = std::byte{1};
			if (auto looked = pages->look(base, chunk, places); !looked)
				return looked.error();
			const auto hot = std::count(places.begin(), places.end(), Place::Hot);
			found += static_cast<size_t>(hot);
			warm += chunk - static_cast<size_t>(hot);
		}
		room += found;
		std::this_thread::sleep_for(std::chrono::milliseconds(200));
	}
	return room * page_bytes;
}

} // namespace

int main(int argc, char **argv)
{
	Options options;
	bool only_room = false;
	CLI::App app("workload: reads KV memory as engines do, and says where it lay");

	app.add_option("--memory", options.memory, "plain, arena or hints")
		->check(CLI::IsMember({"plain", "arena", "hints"}));
	app.add_option("--seed", options.seed, "of all that is random");
	app.add_option("--hot-bytes", options.hot_bytes, "what the hot node has room for");
	app.add_option("--hot-node", options.hot_node, "its number");
	app.add_option("--interval-ms", options.interval_ms, "length of an interval")
		->check(CLI::Range(200, 60'000));
	app.add_option("--oracle", options.oracle, "file to add the hot set of each interval to");
	app.add_option("--status", options.status, "socket of cxl-kvd, whose status to look at");
	app.add_flag("--room", only_room, "print what a process gets of the hot node, and end");
	app.add_option("pattern", options.patterns, "which; none: all");
	CLI11_PARSE(app, argc, argv);
	if (only_room) {
		auto room = find_room(options.hot_node);
		if (!room) {
			fmt::print(stderr, "workload: {}\n", room.error().what);
			return 1;
		}
		fmt::print("{}\n", *room);
		return 0;
	}
	for (const PatternKind &kind : pattern_kinds()) {
		if (!options.patterns.empty() &&
		    std::find(options.patterns.begin(), options.patterns.end(), kind.name) ==
			    options.patterns.end())
			continue;
		auto result = Driver(options, kind).run();
		if (!result) {
			fmt::print(stderr, "workload: {}: {}\n", kind.name, result.error().what);
			return 1;
		}
		fmt::print("{}\n", result->dump());
		fflush(stdout);
		if ((*result)["wrong"] != 0) {
			fmt::print(stderr, "workload: {}: wrong bytes\n", kind.name);
			return 1;
		}
	}
	return 0;
}
