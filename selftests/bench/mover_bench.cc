// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The mover beside a bare move_pages(2) loop over the same pages, between nodes 0
 * and 1 of a guest:
 *
 *	mover_bench [ROUNDS]
 *
 * prints the median of the rounds' ratios, mover to loop, and how near the mover
 * comes to a limit. The two ways take turns at going first.
 */
#include "lib/arena_client.h"
#include "sys/mover.h"
#include "sys/uffd.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <numa.h>
#include <numaif.h>
#include <semaphore>
#include <sys/mman.h>
#include <thread>

using namespace cxlkv;

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kBlocks = 1024; /* of 64 KiB */
constexpr int kHot = 0, kWarm = 1;

[[noreturn]] void die(const std::string &what)
{
	fmt::print(stderr, "mover_bench: {}\n", what);
	exit(1);
}

double median(std::vector<double> values)
{
	std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
	return values[values.size() / 2];
}

class Bench {
public:
	Bench()
	{
		auto client = test::ArenaClient::create(test::small_geometry(kBlocks));
		if (!client)
			die(client.error().what);
		client_ = std::move(*client);
		if (uffd::zeropage(client_->own_files().uffd.get(),
				   reinterpret_cast<uint64_t>(client_->base()),
				   client_->geometry.bytes()))
			die("no memory for the arena");
		auto arena = client_->arena(1, 1);
		if (!arena)
			die(arena.error().what);
		arena_ = std::move(*arena);
		for (uint32_t block = 0; block < kBlocks; block++) {
			arena_->publish(block, CXL_KV_RESIDENT);
			arena_->set_where(block, Where::Hot);
		}
		mover_ = std::make_unique<Mover>(MoverOptions{{kHot}, {kWarm}, no_limit});
		thread_ = std::thread([this] { mover_->run(); });
	}
	~Bench()
	{
		mover_->stop();
		thread_.join();
	}

	/* Seconds, there and back. */
	double by_mover()
	{
		const auto begin = Clock::now();
		for (bool up : {false, true}) {
			std::binary_semaphore done(0);
			/* As the policy orders: extents of 2 MiB. */
			for (uint32_t first = 0; first < kBlocks; first += extent)
				if (!mover_->submit({arena_,
						     {1, first, extent},
						     up,
						     [&, last = first + extent == kBlocks] {
							     if (last)
								     done.release();
						     }}))
					die("the mover's queue is full");
			done.acquire();
		}
		return std::chrono::duration<double>(Clock::now() - begin).count();
	}

	/* The same pages by the same mapping, which has them all in its page table; 4096 a call. */
	double by_loop()
	{
		std::vector<void *> pages(4096);
		std::vector<int> nodes(pages.size()), status(pages.size());
		const auto begin = Clock::now();
		for (int node : {kWarm, kHot}) {
			std::ranges::fill(nodes, node);
			for (uint64_t at = 0; at < arena_->geometry.bytes();) {
				for (void *&page : pages) {
					page = arena_->base() + at;
					at += uffd::page_bytes;
				}
				if (move_pages(0, pages.size(), pages.data(), nodes.data(),
					       status.data(), MPOL_MF_MOVE_ALL))
					die("move_pages left some pages");
			}
		}
		return std::chrono::duration<double>(Clock::now() - begin).count();
	}

	/* Bytes a second, busy for some seconds, as a share of the limit. */
	double share_of(uint64_t limit)
	{
		mover_->set_limit(limit);
		by_mover();
		const uint64_t before = bytes();
		double seconds = 0;
		while (seconds < 10)
			seconds += by_mover();
		mover_->set_limit(no_limit);
		return static_cast<double>(bytes() - before) / seconds / static_cast<double>(limit);
	}

	[[nodiscard]] uint64_t bytes() const
	{
		return mover_->promote.bytes + mover_->demote.bytes;
	}
	[[nodiscard]] uint64_t nr_left() const
	{
		return mover_->promote.failed + mover_->promote.skipped + mover_->demote.failed +
		       mover_->demote.skipped;
	}

private:
	static constexpr uint32_t extent = 32;
	static constexpr uint64_t no_limit = 1ull << 50;

	std::unique_ptr<test::ArenaClient> client_;
	std::shared_ptr<Arena> arena_;
	std::unique_ptr<Mover> mover_;
	std::thread thread_;
};

} // namespace

int main(int argc, char **argv)
{
	const int nr_rounds = argc > 1 ? atoi(argv[1]) : 11;

	setvbuf(stdout, nullptr, _IOLBF, 0); /* some lines take a minute in a guest */
	if (numa_available() < 0 || numa_node_size64(kWarm, nullptr) <= 0) {
		fmt::print("there is no node 1 to move to\n");
		return 0;
	}
	Bench bench;
	std::vector<double> ratios, loops;

	bench.by_loop();
	bench.by_mover();
	for (int round = 0; round < nr_rounds; round++) {
		double mover = 0, loop = 0;
		if (round % 2)
			mover = bench.by_mover();
		loop = bench.by_loop();
		if (!(round % 2))
			mover = bench.by_mover();
		ratios.push_back(loop / mover);
		loops.push_back(loop);
	}
	const uint64_t bytes = 2ull * kBlocks * (64 << 10);
	fmt::print("{} MiB there and back, {} rounds: loop {:.0f} MB/s, mover {:.3f} times that "
		   "({:.3f} to {:.3f}); {} pages stayed\n",
		   bytes >> 21, nr_rounds, static_cast<double>(bytes) / median(loops) / 1e6,
		   median(ratios), std::ranges::min(ratios), std::ranges::max(ratios),
		   bench.nr_left());
	for (uint64_t limit : {8'000'000ull, 32'000'000ull})
		fmt::print("limit {} MB/s: {:.3f} of it\n", limit / 1000000, bench.share_of(limit));
	return 0;
}
