/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The mover between the two nodes of the guest: nothing lost, every page accounted for. */
#include "sys/mover.h"

#include "lib/arena_client.h"
#include "sys/uffd.h"
#include "vm/mover/other_client.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <liburing.h>
#include <linux/userfaultfd.h>
#include <numa.h>
#include <numaif.h>
#include <poll.h>
#include <sys/wait.h>
#include <thread>

namespace cxlkv::test {

namespace {

constexpr int kHot = 0, kWarm = 1;
constexpr const char *kRemove = "/sys/class/cxl_kv/node1/remove";

/* An arena whose blocks are all there and hot, and a mover with a thread of its own. */
class MoverTest : public testing::Test {
protected:
	void SetUp() override
	{
		if (numa_node_size64(kWarm, nullptr) <= 0)
			GTEST_SKIP() << "node 1 has no memory";
	}

	void make(uint32_t nr_blocks, uint64_t bytes_per_s = 1ull << 40)
	{
		make(nr_blocks, {{kHot}, {kWarm}, bytes_per_s});
	}
	void make(uint32_t nr_blocks, MoverOptions options)
	{
		auto client = ArenaClient::create(small_geometry(nr_blocks));
		ASSERT_TRUE(client) << client.error().what;
		client_ = std::move(*client);
		ASSERT_EQ(uffd::zeropage(client_->own_files().uffd.get(),
					 reinterpret_cast<uint64_t>(client_->base()),
					 client_->geometry.bytes()),
			  0);
		auto arena = client_->arena(1, 1);
		ASSERT_TRUE(arena) << arena.error().what;
		start(*arena, std::move(options));
	}

	void start(std::shared_ptr<Arena> arena, uint64_t bytes_per_s = 1ull << 40)
	{
		start(std::move(arena), {{kHot}, {kWarm}, bytes_per_s});
	}
	void start(std::shared_ptr<Arena> arena, MoverOptions options)
	{
		arena_ = std::move(arena);
		for (uint32_t block = 0; block < arena_->geometry.nr_blocks(); block++) {
			arena_->publish(block, CXL_KV_RESIDENT);
			arena_->set_where(block, Where::Hot);
		}
		mover_ = std::make_unique<Mover>(std::move(options));
		thread_ = std::thread([this] { mover_->run(); });
		events_ = std::thread([this] { serve_events(); });
	}

	void TearDown() override
	{
		if (mover_)
			mover_->stop();
		if (thread_.joinable())
			thread_.join();
		stop_events_ = true;
		if (events_.joinable())
			events_.join();
	}

	/* A fault that races with a migration is reported as a minor one: the page is there, map
	 * it. */
	void serve_events()
	{
		const int fd = arena_->uffd();
		uffd_msg event;
		while (!stop_events_) {
			pollfd ready{fd, POLLIN, 0};
			poll(&ready, 1, 50);
			auto nr = uffd::read_events(fd, {&event, 1});
			if (!nr || !*nr)
				continue;
			uint64_t page = event.arg.pagefault.address & ~(uffd::page_bytes - 1);
			uffd::map_existing(fd, page, uffd::page_bytes, false);
			uffd::wake(fd, page, uffd::page_bytes);
			nr_minor_++;
		}
	}

	/* Orders everything and waits for the mover's word. */
	void move_all(bool promote)
	{
		std::mutex mutex;
		std::condition_variable changed;
		bool done = false;
		Extent all{1, 0, arena_->geometry.nr_blocks()};
		ASSERT_TRUE(mover_->submit({arena_, all, promote, [&] {
						    std::lock_guard lock(mutex);
						    done = true;
						    changed.notify_one();
					    }}));
		std::unique_lock lock(mutex);
		ASSERT_TRUE(
			changed.wait_for(lock, std::chrono::seconds(120), [&] { return done; }));
	}

	/* Pages of the arena on the node, as the kernel says; after a move the mover maps them all.
	 */
	uint64_t pages_on(int node)
	{
		uint64_t count = 0;
		for (uint64_t at = 0; at < arena_->geometry.bytes(); at += uffd::page_bytes) {
			void *page = arena_->base() + at;
			int status = -1;
			if (!move_pages(0, 1, &page, nullptr, &status, 0))
				count += status == node;
		}
		return count;
	}

	static void expect_identity(const MoveCounters &c)
	{
		EXPECT_EQ(c.attempted.load(), c.moved + c.failed + c.skipped);
	}

	std::unique_ptr<ArenaClient> client_;
	std::shared_ptr<Arena> arena_;
	std::unique_ptr<Mover> mover_;
	std::thread thread_, events_;
	std::atomic<bool> stop_events_{false};
	std::atomic<uint64_t> nr_minor_{0};
};

/* Every word of its blocks counts up; a lost write shows as a word that is behind. */
class Writer {
public:
	Writer(ArenaClient &client, uint32_t first, uint32_t nr)
	    : client_(client), first_(first), nr_(nr)
	{
		for (uint32_t block = first; block < first + nr; block++)
			client.fill(block, 0);
		thread_ = std::thread([this] { run(); });
	}
	uint64_t finish()
	{
		stop_ = true;
		thread_.join();
		return wrong_;
	}
	std::atomic<uint64_t> rounds{0};

private:
	void run()
	{
		for (uint32_t round = 0; !stop_; round++, rounds++)
			for (uint32_t block = first_; block < first_ + nr_ && !stop_; block++) {
				wrong_ += client_.nr_wrong(block, last(block));
				last_[block - first_] = static_cast<uint16_t>(round + 1);
				client_.fill(block, last(block));
			}
	}
	uint32_t last(uint32_t block) { return last_[block - first_]; }

	ArenaClient &client_;
	uint32_t first_, nr_;
	std::vector<uint16_t> last_ = std::vector<uint16_t>(nr_, 0);
	std::atomic<bool> stop_{false};
	uint64_t wrong_ = 0;
	std::thread thread_;
};

} // namespace

TEST_F(MoverTest, writes_survive_a_hundred_moves_there_and_back)
{
	make(256); /* 16 MiB */
	Writer low(*client_, 0, 128), high(*client_, 128, 128);

	for (int round = 0; round < 100 && !HasFatalFailure(); round++) {
		move_all(false);
		move_all(true);
	}
	uint64_t wrong = low.finish() + high.finish();
	EXPECT_EQ(wrong, 0u);
	EXPECT_GT(low.rounds + high.rounds, 2u);
	expect_identity(mover_->promote);
	expect_identity(mover_->demote);
	/* Concurrent writers make the kernel give up on a page now and then, not on most. */
	EXPECT_GT(mover_->demote.moved.load(), 100u * 4096 / 2);
}

TEST_F(MoverTest, a_pinned_page_stays_and_is_counted_and_the_other_511_move)
{
	make(32); /* 512 pages */
	io_uring ring;
	ASSERT_EQ(io_uring_queue_init(4, &ring, 0), 0);
	iovec pin{client_->base() + 7 * uffd::page_bytes, uffd::page_bytes};
	ASSERT_EQ(io_uring_register_buffers(&ring, &pin, 1), 0);

	move_all(false);
	EXPECT_EQ(mover_->demote.attempted.load(), 512u);
	EXPECT_EQ(mover_->demote.moved.load(), 511u);
	EXPECT_EQ(mover_->demote.failed.load(), 1u);
	EXPECT_EQ(pages_on(kWarm), 511u);
	/* The block of the pinned page counts as where it was, so that the policy can back off. */
	EXPECT_EQ(arena_->where(0), Where::Hot);
	EXPECT_EQ(arena_->where(1), Where::Warm);

	io_uring_queue_exit(&ring);
	expect_identity(mover_->demote);
}

/* The kernel ends a call where it comes from a page that would not move to one that needs not. */
TEST_F(MoverTest, a_pinned_page_does_not_keep_what_comes_behind_it)
{
	make(32);
	io_uring ring;
	ASSERT_EQ(io_uring_queue_init(4, &ring, 0), 0);
	iovec pin{client_->base() + 7 * uffd::page_bytes, uffd::page_bytes};
	ASSERT_EQ(io_uring_register_buffers(&ring, &pin, 1), 0);
	void *there = client_->base() + 9 * uffd::page_bytes;
	int node = kWarm, status = -1;
	ASSERT_EQ(move_pages(0, 1, &there, &node, &status, MPOL_MF_MOVE_ALL), 0);

	move_all(false);
	EXPECT_EQ(mover_->demote.moved.load(), 511u);
	EXPECT_EQ(mover_->demote.failed.load(), 1u);
	EXPECT_EQ(pages_on(kWarm), 511u);
	EXPECT_EQ(arena_->where(31), Where::Warm);

	io_uring_queue_exit(&ring);
	expect_identity(mover_->demote);
}

TEST_F(MoverTest, leased_and_busy_blocks_are_skipped)
{
	make(8);
	client_->lease(3);
	ASSERT_TRUE(arena_->try_busy(5));
	move_all(false);
	EXPECT_EQ(mover_->demote.skipped.load(), 2u * 16);
	EXPECT_EQ(mover_->demote.moved.load(), 6u * 16);
	EXPECT_EQ(arena_->where(3), Where::Hot);
	EXPECT_EQ(arena_->where(5), Where::Hot);
	expect_identity(mover_->demote);
}

TEST_F(MoverTest, a_hole_that_the_client_punched_fails_and_makes_no_page)
{
	make(8);
	ASSERT_EQ(fallocate(client_->own_files().memory.get(),
			    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			    static_cast<off_t>(2) * client_->geometry.block_bytes,
			    client_->geometry.block_bytes),
		  0);
	move_all(false);
	EXPECT_EQ(mover_->demote.failed.load(), 16u);
	EXPECT_EQ(client_->resident_bytes(), 7u * client_->geometry.block_bytes);
	expect_identity(mover_->demote);
}

/* Memory that leaves a node without a page for move_pages(2), which goes further down than a touch.
 */
Mapping fill_node(int node)
{
	constexpr size_t batch = 256;
	long long free = 0, size = numa_node_size64(node, &free);
	auto bytes = static_cast<size_t>(free + size / 16);
	Mapping filler(
		mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		bytes);
	unsigned long mask = 1ul << node;
	bool full = false;

	/* Spills over to the other node instead of having us killed. */
	EXPECT_EQ(mbind(filler.data(), bytes, MPOL_PREFERRED, &mask, 8 * sizeof(mask), 0), 0);
	memset(filler.data(), 1, bytes);
	for (size_t at = bytes / 2 / uffd::page_bytes * uffd::page_bytes; at < bytes && !full;
	     at += batch * uffd::page_bytes) {
		void *pages[batch];
		int nodes[batch], status[batch];
		size_t nr = std::min(batch, (bytes - at) / uffd::page_bytes);
		for (size_t i = 0; i < nr; i++) {
			pages[i] = filler.data() + at + i * uffd::page_bytes;
			nodes[i] = node;
		}
		full = move_pages(0, nr, pages, nodes, status, MPOL_MF_MOVE) != 0;
	}
	EXPECT_TRUE(full) << "there was still room";
	return filler;
}

TEST_F(MoverTest, a_full_node_takes_what_fits_and_says_so)
{
	make(256);
	client_->fill(200, 9);
	Mapping filler = fill_node(kWarm);
	move_all(false);
	filler = Mapping();
	EXPECT_GT(mover_->demote.failed.load(), 0u);
	EXPECT_GT(mover_->nr_no_space.load(), 0u);
	EXPECT_EQ(client_->nr_wrong(200, 9), 0u);
	expect_identity(mover_->demote);
}

/* The tiers are the other way round here: to fill node 0 would leave no memory to run in. */
TEST_F(MoverTest, a_full_hot_node_takes_nothing_and_has_it_once_there_is_room)
{
	make(256, {{kWarm}, {kHot}, 1ull << 40});
	for (uint32_t block = 0; block < 256; block++)
		arena_->set_where(block, Where::Warm);
	client_->fill(255, 9);
	Mapping filler = fill_node(kWarm);
	move_all(true);
	EXPECT_GT(mover_->promote.failed.load(), 0u);
	EXPECT_GT(mover_->nr_no_space.load(), 0u);
	EXPECT_EQ(arena_->where(255), Where::Warm);
	filler = Mapping();
	move_all(true);
	EXPECT_EQ(arena_->bytes.hot.load(), client_->geometry.bytes());
	EXPECT_EQ(pages_on(kWarm), 4096u);
	EXPECT_EQ(client_->nr_wrong(255, 9), 0u);
	expect_identity(mover_->promote);
}

TEST_F(MoverTest, huge_pages_asked_for_by_the_host_do_not_reach_the_arena)
{
	const char *knob = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	std::ofstream(knob) << "always";
	make(64); /* 4 MiB, aligned or not */
	move_all(false);
	std::ofstream(knob) << "never";
	EXPECT_EQ(mover_->demote.moved.load(), 64u * 16);
	EXPECT_EQ(pages_on(kWarm), 64u * 16);
}

uint64_t shmem_huge_bytes()
{
	std::ifstream meminfo("/proc/meminfo");
	std::string word;
	uint64_t kilobytes = 0;
	while (meminfo >> word)
		if (word == "ShmemHugePages:")
			meminfo >> kilobytes;
	return kilobytes << 10;
}

/* A client that allocated its file before it registered it may have got them. */
TEST_F(MoverTest, huge_pages_that_a_client_made_itself_move_and_every_page_counts_once)
{
	const char *knob = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	std::ofstream(knob) << "always" << std::flush;
	auto client = ArenaClient::create(small_geometry(64)); /* two of them */
	ASSERT_TRUE(client) << client.error().what;
	client_ = std::move(*client);
	ASSERT_EQ(fallocate(client_->own_files().memory.get(), 0, 0,
			    static_cast<off_t>(client_->geometry.bytes())),
		  0);
	std::ofstream(knob) << "never" << std::flush;
	ASSERT_GT(shmem_huge_bytes(), 0u);
	auto arena = client_->arena(1, 1);
	ASSERT_TRUE(arena) << arena.error().what;
	start(*arena);
	client_->fill(40, 3);
	move_all(false);
	EXPECT_GT(shmem_huge_bytes(), 0u) << "they were split";
	EXPECT_EQ(mover_->demote.moved.load(), 64u * 16);
	EXPECT_EQ(mover_->demote.failed.load(), 0u);
	EXPECT_EQ(pages_on(kWarm), 64u * 16);
	EXPECT_EQ(arena_->bytes.warm.load(), client_->geometry.bytes());
	EXPECT_EQ(client_->nr_wrong(40, 3), 0u);
	expect_identity(mover_->demote);
}

TEST_F(MoverTest, the_limit_holds_within_five_percent)
{
	constexpr uint64_t rate = 8 << 20; /* bytes a second: slow enough for any machine */
	make(64, rate);                    /* 4 MiB a pass */
	auto begin = std::chrono::steady_clock::now();
	for (int i = 0; i < 4; i++) {
		move_all(false);
		move_all(true);
	}
	double seconds =
		std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
	uint64_t bytes = mover_->demote.bytes + mover_->promote.bytes;
	/* How near it comes from below is mover_bench's: other work on the machine counts there. */
	EXPECT_LE(static_cast<double>(bytes) / seconds, rate * 1.05);
}

TEST_F(MoverTest, a_client_that_is_killed_in_mid_batch_harms_nobody)
{
	OtherClient client(256);
	auto arena = client.arena(256);
	ASSERT_TRUE(arena) << arena.error().what;
	start(*arena);
	std::thread killer([&] {
		while (mover_->demote.moved < 2000)
			std::this_thread::yield();
		kill(client.pid, SIGKILL);
	});
	for (int round = 0; round < 4; round++) {
		move_all(false);
		move_all(true);
	}
	killer.join();
	EXPECT_TRUE(WIFSIGNALED(client.finish()));
	expect_identity(mover_->demote);
	expect_identity(mover_->promote);
}

TEST_F(MoverTest, memory_of_a_stopped_client_moves_and_is_whole_when_it_goes_on)
{
	OtherClient client(64);
	auto arena = client.arena(64);
	ASSERT_TRUE(arena) << arena.error().what;
	ASSERT_EQ(kill(client.pid, SIGSTOP), 0);
	ASSERT_EQ(waitpid(client.pid, nullptr, WUNTRACED), client.pid);
	start(*arena);
	move_all(false);
	EXPECT_EQ(mover_->demote.moved.load(), 64u * 16);
	move_all(true);
	EXPECT_EQ(mover_->promote.moved.load(), 64u * 16);
	ASSERT_EQ(kill(client.pid, SIGCONT), 0);
	EXPECT_EQ(client.finish(), 0) << "a word was wrong";
}

TEST_F(MoverTest, a_node_that_the_clients_cpuset_forbids_is_left_alone)
{
	OtherClient client(32);
	Cpuset hot_only("0");
	auto arena = client.arena(32);
	ASSERT_TRUE(arena) << arena.error().what;
	start(*arena);
	EXPECT_TRUE(mover_->may_demote(*arena_));
	ASSERT_TRUE(Cpuset::take(client.pid));
	EXPECT_FALSE(mover_->may_demote(*arena_));
	move_all(false);
	EXPECT_EQ(mover_->demote.skipped.load(), 512u);
	EXPECT_EQ(mover_->demote.moved.load(), 0u);
	EXPECT_EQ(arena_->where(0), Where::Hot);
	expect_identity(mover_->demote);
	EXPECT_EQ(client.finish(), 0);
}

TEST_F(MoverTest, a_node_that_our_own_cpuset_forbids_fails_and_is_counted)
{
	make(32);
	Cpuset hot_only("0");
	ASSERT_TRUE(Cpuset::take(getpid()));
	move_all(false);
	EXPECT_EQ(mover_->demote.moved.load(), 0u);
	EXPECT_EQ(mover_->demote.failed + mover_->demote.skipped, 512u);
	expect_identity(mover_->demote);
}

TEST_F(MoverTest, a_node_that_is_removed_in_mid_run_loses_nothing)
{
	if (access(kRemove, W_OK))
		GTEST_SKIP() << "node 1 is not the module's to remove";
	make(256);
	Writer writer(*client_, 0, 256);
	std::atomic<bool> stop{false};
	std::thread back_and_forth([&] {
		while (!stop) {
			move_all(false);
			move_all(true);
		}
	});
	while (mover_->promote.moved < 4096)
		std::this_thread::yield();
	bool removed = false;
	for (int tries = 0; tries < 50 && !removed; tries++) {
		std::ofstream remove(kRemove);
		remove << "1" << std::flush;
		removed = remove.good();
	}
	EXPECT_TRUE(removed);
	stop = true;
	back_and_forth.join();
	/* To a node that is gone: it fails, or the kernel has already taken the node from the
	 * cpuset. */
	const uint64_t moved = mover_->demote.moved,
		       stayed = mover_->demote.failed + mover_->demote.skipped;
	move_all(false);
	EXPECT_EQ(writer.finish(), 0u);
	EXPECT_EQ(mover_->demote.moved.load(), moved);
	EXPECT_EQ(mover_->demote.failed + mover_->demote.skipped, stayed + 4096);
	EXPECT_EQ(pages_on(kHot), 4096u);
	expect_identity(mover_->demote);
	expect_identity(mover_->promote);
}

} // namespace cxlkv::test
