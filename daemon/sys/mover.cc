/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/mover.h"

#include "base/log.h"
#include "sys/arena_pages.h"
#include "sys/cpuset.h"

#include <algorithm>
#include <chrono>
#include <numa.h>
#include <numaif.h>
#include <thread>

namespace cxlkv {

namespace {

/* The kernel leaves a page's status as it was when it stops early (design.md section 9). */
constexpr int kUntouched = -10000;
/* move_pages' fixed cost dominates small calls (protocol.md, migrate): at least 256 pages a call.
 */
constexpr size_t kBatchPages = 4096;
/* Where a tier has several nodes, so that also a small arena is spread by weight. */
constexpr size_t kSpreadPages = 512;

uint64_t now_ns()
{
	return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/* move_pages does not say why a page stayed. A node keeps a little for itself below its watermarks.
 */
bool is_full(int node, uint64_t bytes)
{
	long long free = 0, size = numa_node_size64(node, &free);

	return size > 0 && free < size / 64 + static_cast<long long>(bytes);
}

size_t page_bytes()
{
	static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
	return bytes;
}

} // namespace

/* Blocks claimed for one move_pages call, all of one arena and direction. */
struct Mover::Batch {
	Arena &arena;
	std::vector<uint32_t> blocks;
	std::vector<void *> pages;
	std::vector<int> nodes, status;
	Moves moves;

	void clear()
	{
		moves = {};
		blocks.clear();
		pages.clear();
	}
};

void MoveCounters::add(const Moves &moves)
{
	std::lock_guard lock(mutex_);
	attempted += moves.attempted;
	moved += moves.moved;
	failed += moves.failed;
	skipped += moves.skipped;
	bytes += moves.bytes;
}

Moves MoveCounters::read() const
{
	std::lock_guard lock(mutex_);
	return {attempted, moved, failed, skipped, bytes};
}

void Mover::stop()
{
	std::lock_guard lock(mutex_);
	stop_ = true;
	wake_.notify_all();
}

void Mover::pause(bool on)
{
	std::lock_guard lock(mutex_);
	paused_ = on;
	wake_.notify_all();
}

bool Mover::submit(MoveOrder order)
{
	std::lock_guard lock(mutex_);
	if (stop_ || paused_ || queue_.size() >= options_.max_queued)
		return false;
	order.since_ns = now_ns();
	queue_.push_back(std::move(order));
	wake_.notify_one();
	return true;
}

void Mover::run()
{
	std::unique_lock lock(mutex_);

	while (!stop_) {
		wake_.wait(lock, [&] { return stop_ || (!paused_ && !queue_.empty()); });
		if (stop_)
			break;
		const std::vector<MoveOrder> orders = take_orders();
		lock.unlock();
		execute(orders);
		for (const MoveOrder &order : orders)
			if (order.done)
				order.done();
		lock.lock();
	}
	for (MoveOrder &order : queue_)
		if (order.done)
			order.done();
	queue_.clear();
}

/* Orders of one arena and direction share system calls. */
std::vector<MoveOrder> Mover::take_orders()
{
	std::vector<MoveOrder> orders;
	uint64_t bytes = 0;

	while (!queue_.empty() && bytes < kBatchPages * page_bytes()) {
		MoveOrder &next = queue_.front();
		if (!orders.empty() &&
		    (next.arena != orders[0].arena || next.promote != orders[0].promote))
			break;
		bytes += uint64_t{next.extent.nr} * next.arena->geometry.block_bytes;
		orders.push_back(std::move(next));
		queue_.pop_front();
	}
	return orders;
}

bool Mover::may_demote(const Arena &arena) const
{
	return cpuset_allows(arena.options.pid, options_.warm_nodes);
}

int Mover::target(bool up, uint64_t bytes) const
{
	if (options_.target)
		return options_.target(up, bytes);
	return (up ? options_.hot_nodes : options_.warm_nodes)[0];
}

/* Until the bytes moved before are paid for. Before blocks are claimed, which nobody else can spill
 * or drop meanwhile. False: stop() was called. */
bool Mover::wait_for_budget()
{
	std::unique_lock lock(mutex_);

	while (uint64_t wait_ns = stop_ ? 0 : pace_.wait_ns(now_ns()))
		wake_.wait_for(lock, std::chrono::nanoseconds(wait_ns), [&] { return stop_; });
	return !stop_;
}

size_t Mover::blocks_at_once(const Arena &arena, bool up) const
{
	const bool spread = (up ? options_.hot_nodes : options_.warm_nodes).size() > 1;
	const uint64_t bytes = std::min((spread ? kSpreadPages : kBatchPages) * page_bytes(),
					Pace::most_at_once(max_bytes_per_s_));

	return std::max<size_t>(1, bytes / arena.geometry.block_bytes);
}

bool Mover::claim(Arena &arena, uint32_t block, Where from) const
{
	if (arena.leased(block) || !arena.try_busy(block))
		return false;
	if (arena.where(block) == from)
		return true;
	arena.clear_busy(block);
	return false;
}

void Mover::execute(const std::vector<MoveOrder> &orders)
{
	const bool up = orders[0].promote;
	Batch batch{*orders[0].arena, {}, {}, {}, {}, {}};
	std::vector<uint32_t> blocks;

	for (const MoveOrder &order : orders)
		for (uint32_t i = 0; i < order.extent.nr; i++)
			blocks.push_back(order.extent.first + i);
	const size_t pages_per_block = batch.arena.geometry.block_bytes / page_bytes();
	for (size_t i = 0; i < blocks.size() && wait_for_budget();) {
		const size_t end = std::min(blocks.size(), i + blocks_at_once(batch.arena, up));
		for (batch.clear(); i < end; i++) {
			batch.moves.attempted += pages_per_block;
			if (claim(batch.arena, blocks[i], up ? Where::Warm : Where::Hot))
				batch.blocks.push_back(blocks[i]);
			else
				batch.moves.skipped += pages_per_block;
		}
		if (!batch.blocks.empty())
			move_claimed(batch, up, orders[0].since_ns);
		(up ? promote : demote).add(batch.moves);
	}
}

void Mover::move_claimed(Batch &batch, bool up, uint64_t since_ns)
{
	const uint64_t bytes = uint64_t{batch.arena.geometry.block_bytes} * batch.blocks.size();
	const int node = target(up, bytes);

	if (cpuset_allows(batch.arena.options.pid, {node})) {
		const uint64_t begin = now_ns();
		move_batch(batch, node, up);
		pace_.charge(batch.moves.bytes, max_bytes_per_s_);
		if (up)
			promote_wait_ns.add(now_ns() - since_ns, batch.blocks.size());
		if (up && options_.on_promoted)
			options_.on_promoted(batch.moves.bytes, now_ns() - begin);
	} else {
		batch.moves.skipped += bytes / page_bytes();
	}
	for (uint32_t block : batch.blocks)
		batch.arena.clear_busy(block);
}

/*
 * Leaves in the batch's status where each page is then, and returns the errno. Past a page that is
 * there already, or is none, the kernel goes on only if all before it moved: one that is pinned
 * would keep what comes behind. So what is left gets a second call, unless the node is full.
 * Pages of one huge folio move with the first, and the kernel calls the second busy.
 */
int Mover::move_pages_to(Batch &batch, int node)
{
	auto is_there = [node](int status) { return status == node; };
	auto move = [&](const std::vector<void *> &pages) {
		batch.nodes.assign(pages.size(), node);
		batch.status.assign(pages.size(), kUntouched);
		long left = move_pages(0, pages.size(), const_cast<void **>(pages.data()),
				       batch.nodes.data(), batch.status.data(), MPOL_MF_MOVE_ALL);
		return left < 0 ? errno : 0;
	};
	auto ask = [&] {
		batch.status.assign(batch.pages.size(), kUntouched);
		if (move_pages(0, batch.pages.size(), batch.pages.data(), nullptr,
			       batch.status.data(), 0) < 0)
			batch.status.assign(batch.pages.size(), kUntouched);
	};

	int move_errno = move(batch.pages);
	if (std::ranges::all_of(batch.status, is_there))
		return 0;
	ask();
	std::vector<void *> left;
	for (size_t i = 0; i < batch.pages.size(); i++)
		if (batch.status[i] >= 0 && !is_there(batch.status[i]))
			left.push_back(batch.pages[i]);
	if (!left.empty() && !is_full(node, left.size() * page_bytes())) {
		move_errno = move(left);
		ask();
	}
	uint64_t skipped = 0;
	if (move_errno && move_errno != ENOENT && move_errno != ENOMEM &&
	    complaint_.allow(&skipped))
		log_warning("move_pages to node {}: {} ({} more like this)", node,
			    strerror(move_errno), skipped);
	return move_errno;
}

void Mover::move_batch(Batch &batch, int node, bool up)
{
	const size_t page = page_bytes(), per_block = batch.arena.geometry.block_bytes / page;

	batch.pages = map_pages(batch.arena, batch.blocks);
	const int move_errno = move_pages_to(batch, node);
	size_t nr_failed = 0;
	for (size_t i = 0; i < batch.blocks.size(); i++) {
		const auto first = batch.status.begin() + static_cast<ptrdiff_t>(i * per_block);
		const auto there = static_cast<size_t>(
			std::count(first, first + static_cast<ptrdiff_t>(per_block), node));
		batch.moves.moved += there;
		batch.moves.bytes += there * page;
		nr_failed += per_block - there;
		if (there == per_block)
			batch.arena.set_where(batch.blocks[i], up ? Where::Hot : Where::Warm);
	}
	batch.moves.failed += nr_failed;
	if (move_errno == ENOMEM || (nr_failed && is_full(node, nr_failed * page)))
		nr_no_space++;
}

} // namespace cxlkv
