/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/mover.h"

#include "base/log.h"
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
	std::shared_ptr<Arena> arena;
	std::vector<uint32_t> blocks;
	std::vector<void *> pages;
	std::vector<int> status;
};

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
		/* Orders of one arena and direction share system calls. */
		std::vector<MoveOrder> orders;
		size_t pages = 0;
		while (!queue_.empty() && pages < kBatchPages) {
			MoveOrder &next = queue_.front();
			if (!orders.empty() &&
			    (next.arena != orders[0].arena || next.promote != orders[0].promote))
				break;
			pages += size_t{next.extent.nr} * next.arena->geometry.block_bytes /
				 page_bytes();
			orders.push_back(std::move(next));
			queue_.pop_front();
		}
		lock.unlock();
		execute(orders);
		for (MoveOrder &order : orders)
			if (order.done)
				order.done();
		lock.lock();
	}
	for (MoveOrder &order : queue_)
		if (order.done)
			order.done();
	queue_.clear();
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

/* Sleeps until the bytes moved before are paid for; the limit holds over any second. Before blocks
 * are claimed, which nobody else can spill or drop meanwhile. */
void Mover::wait_for_budget()
{
	uint64_t now = now_ns();

	if (budget_time_ns_ > now)
		std::this_thread::sleep_for(std::chrono::nanoseconds(budget_time_ns_ - now));
	budget_time_ns_ = std::max(budget_time_ns_, now);
}

void Mover::charge(uint64_t bytes)
{
	budget_time_ns_ += static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 /
						 static_cast<double>(max_bytes_per_s_.load()));
}

void Mover::execute(std::vector<MoveOrder> &orders)
{
	bool up = orders[0].promote;
	MoveCounters &counters = up ? promote : demote;
	const auto from = up ? Where::Warm : Where::Hot;
	Batch batch{orders[0].arena, {}, {}, {}};
	Arena &arena = *batch.arena;
	const uint32_t block_bytes = arena.geometry.block_bytes;
	const size_t pages_per_block = block_bytes / page_bytes();

	wait_for_budget();
	for (const MoveOrder &order : orders) {
		for (uint32_t block = order.extent.first;
		     block < order.extent.first + order.extent.nr; block++) {
			counters.attempted += pages_per_block;
			if (arena.leased(block) || !arena.try_busy(block)) {
				counters.skipped += pages_per_block;
				continue;
			}
			if (arena.where(block) != from) {
				arena.clear_busy(block);
				counters.skipped += pages_per_block;
				continue;
			}
			batch.blocks.push_back(block);
		}
	}
	if (batch.blocks.empty())
		return;
	const uint64_t bytes = uint64_t{block_bytes} * batch.blocks.size();
	const int node = target(up, bytes);
	if (cpuset_allows(arena.options.pid, {node})) {
		charge(bytes);
		const uint64_t begin = now_ns(), before = counters.bytes;
		move_batch(batch, node, counters);
		if (up)
			promote_wait_ns.add(now_ns() - orders[0].since_ns, batch.blocks.size());
		if (up && options_.on_promoted)
			options_.on_promoted(counters.bytes - before, now_ns() - begin);
	} else {
		counters.skipped += pages_per_block * batch.blocks.size();
	}
	for (uint32_t block : batch.blocks)
		arena.clear_busy(block);
}

void Mover::move_batch(Batch &batch, int node, MoveCounters &counters)
{
	Arena &arena = *batch.arena;
	const size_t page = page_bytes(), pages_per_block = arena.geometry.block_bytes / page;

	for (uint32_t block : batch.blocks) {
		std::byte *at = arena.base() + arena.offset(block);
		/* In our page table, or move_pages answers ENOENT. A hole that the client punched
		 * is an error here, not a new page: its pages just count as failed. */
		madvise(at, arena.geometry.block_bytes, MADV_POPULATE_READ);
		for (size_t i = 0; i < pages_per_block; i++)
			batch.pages.push_back(at + i * page);
	}
	batch.status.assign(batch.pages.size(), kUntouched);
	std::vector<int> nodes(batch.pages.size(), node);
	long left = move_pages(0, batch.pages.size(), batch.pages.data(), nodes.data(),
			       batch.status.data(), MPOL_MF_MOVE_ALL);
	int move_errno = left < 0 ? errno : 0;
	/* Any failure leaves statuses unwritten: ask where the pages are now. */
	if (left != 0) {
		uint64_t skipped = 0;
		if (move_errno && move_errno != ENOENT && move_errno != ENOMEM &&
		    complaint_.allow(&skipped))
			log_warning("move_pages to node {}: {} ({} more like this)", node,
				    strerror(move_errno), skipped);
		std::fill(batch.status.begin(), batch.status.end(), kUntouched);
		if (move_pages(0, batch.pages.size(), batch.pages.data(), nullptr,
			       batch.status.data(), 0) < 0)
			std::fill(batch.status.begin(), batch.status.end(), kUntouched);
	}
	size_t nr_failed = 0;
	for (size_t i = 0; i < batch.blocks.size(); i++) {
		size_t there = 0;
		for (size_t p = 0; p < pages_per_block; p++)
			there += batch.status[i * pages_per_block + p] == node;
		counters.moved += there;
		nr_failed += pages_per_block - there;
		counters.bytes += there * page;
		if (there == pages_per_block)
			arena.set_where(batch.blocks[i],
					&counters == &promote ? Where::Hot : Where::Warm);
	}
	counters.failed += nr_failed;
	if (move_errno == ENOMEM || (nr_failed && is_full(node, nr_failed * page)))
		nr_no_space++;
}

} // namespace cxlkv
