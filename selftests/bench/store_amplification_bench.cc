/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Write amplification of a store that is 80 % full: bytes that went to the device
 * for each byte that was given to it, once with the conversations of a real trace
 * (blocks enter when they are first used, the least recently used leave), once
 * with uniform overwriting, the worst there is. The trace is looked for in
 * CXL_KV_TRACES, default ../shared/data/traces.
 */
#include "sys/spill_store.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <list>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <random>
#include <unistd.h>
#include <unordered_map>

using namespace cxlkv;

namespace {

constexpr uint32_t kBlockBytes = 16 << 10;
constexpr uint32_t kExtentBlocks = 64; /* 1 MiB */
constexpr uint64_t kSize = 1ull << 30;
constexpr uint64_t kArena = 1;

[[noreturn]] void die(const std::string &why)
{
	fmt::print(stderr, "store_amplification_bench: {}\n", why);
	exit(1);
}

/* A store with a budget of live blocks. */
class Churn {
public:
	explicit Churn(const std::string &path)
	{
		StoreOptions options;
		options.path = path;
		options.size_bytes = kSize;
		options.extent_bytes = kExtentBlocks * kBlockBytes;
		options.queue_depth = options.nr_buffers = 8;
		auto opened = SpillStore::open(options);
		if (!opened)
			die(opened.error().what);
		store_ = std::move(*opened);
		max_blocks_ = store_->stats().capacity_bytes * 8 / 10 / kBlockBytes;
	}

	[[nodiscard]] uint64_t max_blocks() const { return max_blocks_; }
	SpillStore &store() { return *store_; }

	void write(uint32_t first, uint32_t nr)
	{
		for (;;) {
			Bounce buffer = store_->take_buffer();
			if (!buffer.data) {
				collect();
				continue;
			}
			memset(buffer.data, static_cast<int>(first), size_t{nr} * kBlockBytes);
			uint64_t tag = uint64_t{first} << 32 | nr;
			auto queued = store_->write(kArena, first, nr, kBlockBytes, 1, buffer, tag);
			if (queued)
				return;
			/* Full until the cleaner is done with a segment. */
			store_->give_buffer(buffer);
			if (queued.error().code != ENOSPC || ++nr_waits_ > 1000000)
				die(queued.error().what);
			collect();
		}
	}
	void collect()
	{
		pollfd waiter{store_->event_fd(), POLLIN, 0};
		poll(&waiter, 1, 10);
		for (StoreCompletion &one : store_->poll()) {
			store_->give_buffer(one.buffer);
			for (uint32_t i = 0; i < one.results.size(); i++) {
				if (one.results[i])
					die(strerror(one.results[i]));
				store_->commit({kArena, static_cast<uint32_t>(one.tag >> 32) + i});
			}
		}
	}
	void drain()
	{
		while (store_->nr_in_flight())
			collect();
	}
	/* Amplification of what was written since the last call. */
	void report(const char *what)
	{
		drain();
		StoreStats now = store_->stats();
		double user = static_cast<double>(now.user_bytes - last_.user_bytes);
		double written = static_cast<double>(now.written_bytes - last_.written_bytes);
		if (user > 0 && what)
			fmt::print("{}: {:.2f} GB given, {:.2f} GB written ({:.2f} GB by the "
				   "cleaner), {:.0f} % live: "
				   "amplification {:.3f}\n",
				   what, user / 1e9, written / 1e9,
				   static_cast<double>(now.cleaned_bytes - last_.cleaned_bytes) /
					   1e9,
				   100.0 * static_cast<double>(now.used_bytes) /
					   static_cast<double>(now.capacity_bytes),
				   written / user);
		last_ = now;
	}

private:
	std::unique_ptr<SpillStore> store_;
	uint64_t max_blocks_ = 0, nr_waits_ = 0;
	StoreStats last_;
};

/* Blocks of the trace by their first use, the least recently used leave. */
class Conversations {
public:
	explicit Conversations(Churn &churn) : churn_(churn) {}

	void request(const std::vector<uint64_t> &hashes)
	{
		uint32_t first = 0, nr = 0;
		for (uint64_t hash : hashes) {
			auto [it, fresh] =
				numbers_.try_emplace(hash, static_cast<uint32_t>(numbers_.size()));
			uint32_t number = it->second;
			if (touch(number))
				continue;
			if (nr && (first + nr != number || nr == kExtentBlocks)) {
				churn_.write(first, nr);
				nr = 0;
			}
			if (!nr)
				first = number;
			nr++;
		}
		if (nr)
			churn_.write(first, nr);
		while (order_.size() > churn_.max_blocks()) {
			uint32_t oldest = order_.back();
			order_.pop_back();
			where_.erase(oldest);
			churn_.store().drop({kArena, oldest});
		}
	}
	[[nodiscard]] bool full() const { return order_.size() >= churn_.max_blocks() * 99 / 100; }

private:
	/* True where the block is live already. */
	bool touch(uint32_t number)
	{
		auto it = where_.find(number);
		bool live = it != where_.end();
		if (live)
			order_.erase(it->second);
		order_.push_front(number);
		where_[number] = order_.begin();
		return live;
	}

	Churn &churn_;
	std::unordered_map<uint64_t, uint32_t> numbers_;
	std::list<uint32_t> order_;
	std::unordered_map<uint32_t, std::list<uint32_t>::iterator> where_;
};

void replay_trace(const std::string &path)
{
	const char *base = getenv("CXL_KV_TRACES");
	std::string trace =
		std::string(base ? base : "../shared/data/traces") + "/conversation.jsonl.xz";
	if (!std::filesystem::exists(trace)) {
		fmt::print("conversation trace: not here, set CXL_KV_TRACES\n");
		return;
	}
	Churn churn(path);
	Conversations conversations(churn);
	FILE *pipe = popen(fmt::format("xz -dc {}", trace).c_str(), "r");
	char *line = nullptr;
	size_t room = 0;
	bool measuring = false;
	while (pipe && getline(&line, &room, pipe) > 0) {
		auto request = nlohmann::json::parse(line);
		conversations.request(request["hash_ids"].get<std::vector<uint64_t>>());
		if (!measuring && conversations.full()) {
			churn.report(nullptr); /* from here on: the filling is not counted */
			measuring = true;
		}
	}
	free(line);
	if (pipe)
		pclose(pipe);
	churn.report(measuring ? "conversation trace" : "conversation trace (never full)");
}

void overwrite_uniformly(const std::string &path)
{
	Churn churn(path);
	std::mt19937_64 random(1);
	auto nr_extents = static_cast<uint32_t>(churn.max_blocks() / kExtentBlocks);

	for (uint32_t i = 0; i < nr_extents; i++)
		churn.write(i * kExtentBlocks, kExtentBlocks);
	churn.report(nullptr);
	for (uint32_t i = 0; i < 3 * nr_extents; i++)
		churn.write(static_cast<uint32_t>(random() % nr_extents) * kExtentBlocks,
			    kExtentBlocks);
	churn.report("uniform overwriting of extents");
}

} // namespace

int main()
{
	const char *base = getenv("CXL_KV_BENCH_DIR");
	std::string directory = std::string(base ? base : "/var/tmp") + "/cxl-kv-store-wa-XXXXXX";
	if (!mkdtemp(directory.data()))
		die("no scratch directory; set CXL_KV_BENCH_DIR");
	replay_trace(directory + "/trace");
	overwrite_uniformly(directory + "/uniform");
	std::filesystem::remove_all(directory);
	return 0;
}
