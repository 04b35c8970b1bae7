/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The mover thread: hot <-> warm by move_pages(2) on the daemon's own mapping,
 * in batches, below a bandwidth limit. move_pages is synchronous and can stall
 * on a client's page, which is why it has a thread of its own.
 */
#pragma once

#include "base/histogram.h"
#include "base/log.h"
#include "base/pace.h"
#include "base/result.h"
#include "core/types.h"
#include "sys/arena.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace cxlkv {

struct MoverOptions {
	std::vector<int> hot_nodes, warm_nodes;
	uint64_t max_bytes_per_s = 1000 * 1000 * 1000ull;
	uint32_t max_queued = 256; /* orders */
	/* The node of hot (up) or warm for so many bytes; the first where it is empty. */
	std::function<int(bool up, uint64_t bytes)> target = {};
	/* Bytes that went up, and the time of the call that moved them; may be empty. */
	std::function<void(uint64_t bytes, uint64_t ns)> on_promoted = {};
};

/* Pages. Skipped are those of blocks that are in use, and of a client whose cpuset forbids the
 * node. attempted = moved + failed + skipped, always. */
struct Moves {
	uint64_t attempted = 0, moved = 0, failed = 0, skipped = 0, bytes = 0;
};

class MoveCounters {
public:
	std::atomic<uint64_t> attempted{0}, moved{0}, failed{0}, skipped{0}, bytes{0};

	/* All of a batch at once, for who reads them all. */
	void add(const Moves &moves);
	[[nodiscard]] Moves read() const;

private:
	mutable std::mutex mutex_;
};

struct MoveOrder {
	std::shared_ptr<Arena> arena;
	Extent extent;
	bool promote = false;
	std::function<void()> done; /* on the mover thread, whatever came of it */
	uint64_t since_ns = 0;      /* set by submit() */
};

class Mover {
public:
	explicit Mover(MoverOptions options)
	    : options_(std::move(options)), max_bytes_per_s_(options_.max_bytes_per_s)
	{
	}

	void run(); /* until stop() */
	void stop();
	/* False: the queue is full; order again later. */
	bool submit(MoveOrder order);
	[[nodiscard]] bool usable() const
	{
		return !options_.hot_nodes.empty() && !options_.warm_nodes.empty();
	}
	/* The client's cpuset lets its memory lie on a warm node. Any thread. */
	[[nodiscard]] bool may_demote(const Arena &arena) const;
	/* In place of the options' max_bytes_per_s. Any thread. */
	void set_limit(uint64_t max_bytes_per_s) { max_bytes_per_s_ = max_bytes_per_s; }
	/* Stops taking orders while set; for tests and for reading numa_maps in peace. */
	void pause(bool on);

	MoveCounters promote, demote;
	std::atomic<uint64_t> nr_no_space{0};
	Histogram promote_wait_ns; /* order to moved, by block */

private:
	struct Batch;

	std::vector<MoveOrder> take_orders();
	void execute(const std::vector<MoveOrder> &orders);
	[[nodiscard]] bool claim(Arena &arena, uint32_t block, Where from) const;
	void move_claimed(Batch &batch, bool up, uint64_t since_ns);
	void move_batch(Batch &batch, int node, bool up);
	int move_pages_to(Batch &batch, int node);
	[[nodiscard]] bool wait_for_budget();
	[[nodiscard]] size_t blocks_at_once(const Arena &arena, bool up) const;
	[[nodiscard]] int target(bool up, uint64_t bytes) const;

	const MoverOptions options_;
	std::atomic<uint64_t> max_bytes_per_s_;
	std::mutex mutex_;
	std::condition_variable wake_;
	std::deque<MoveOrder> queue_;
	bool stop_ = false, paused_ = false;
	LogLimit complaint_;
	Pace pace_;
};

} // namespace cxlkv
