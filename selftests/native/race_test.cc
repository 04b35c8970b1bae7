/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two client threads write and check words of their own in every block while
 * the blocks leave memory ten thousand times. Each thread knows what it wrote;
 * one wrong word is a lost write or other bytes.
 */
#include "lib/fault_fixture.h"

#include <gtest/gtest.h>
#include <random>

using namespace cxlkv;
using namespace cxlkv::test;
using Kind = Request::Kind;

namespace {

constexpr uint32_t nr_blocks = 24, block_bytes = 16384, nr_threads = 2;
constexpr uint64_t enough_spills = 10'000;

class Writer {
public:
	Writer(ArenaClient &client, uint32_t number, bool leases)
	    : client_(client), number_(number), leases_(leases), random_(number + 1),
	      expected_(uint64_t{nr_blocks} * words_per_block / nr_threads)
	{
	}

	void run(const std::atomic<bool> &stop)
	{
		while (!stop)
			step();
	}

	void check_all()
	{
		for (uint32_t i = 0; i < expected_.size(); i++)
			nr_wrong += word(i).load() != expected_[i];
	}

	uint64_t nr_ops = 0, nr_wrong = 0;

private:
	static constexpr uint32_t words_per_block = block_bytes / 8;

	[[nodiscard]] std::atomic<uint64_t> &word(uint32_t i) const
	{
		uint32_t per_block = words_per_block / nr_threads;
		return client_.block64(i / per_block)[i % per_block * nr_threads + number_];
	}

	/* Mostly a few words near each other, as a decode step appends; now and then a read. */
	void step()
	{
		auto i = static_cast<uint32_t>(random_() % (expected_.size() - 4));
		uint32_t block = i / (words_per_block / nr_threads);
		bool lease = leases_ && random_() % 8 == 0;

		if (lease)
			client_.lease(block);
		for (uint32_t k = 0; k < 4; k++, nr_ops++) {
			nr_wrong += word(i + k).load() != expected_[i + k];
			if (random_() % 4)
				word(i + k).store(expected_[i + k] = random_());
		}
		if (lease)
			client_.unlease(block);
	}

	ArenaClient &client_;
	const uint32_t number_;
	const bool leases_;
	std::mt19937_64 random_;
	std::vector<uint64_t> expected_;
};

void race(bool leases)
{
	auto client = ArenaClient::create(small_geometry(nr_blocks, 1, block_bytes));
	ASSERT_TRUE(client) << client.error().what;
	auto arena = (*client)->arena(1, 5);
	ASSERT_TRUE(arena) << arena.error().what;
	auto server = TestServer::start({});
	ASSERT_TRUE(server) << server.error().what;
	ASSERT_EQ((*server)->call(Kind::Attach, *arena).error, 0);
	ASSERT_EQ((*server)->call(Kind::Make, *arena, {{1, 0, nr_blocks}}).error, 0);

	std::atomic<bool> stop = false;
	std::vector<Writer> writers;
	for (uint32_t i = 0; i < nr_threads; i++)
		writers.emplace_back(**client, i, leases);
	std::vector<std::thread> threads;
	for (Writer &writer : writers)
		threads.emplace_back([&] { writer.run(stop); });

	std::mt19937 random(1);
	auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
	while ((*server)->stats().nr_spilled < enough_spills &&
	       std::chrono::steady_clock::now() < end) {
		uint32_t first = random() % nr_blocks;
		uint32_t nr = 1 + random() % (nr_blocks - first);
		(*server)->call(Kind::Spill, *arena, {{1, first, nr}});
		if (random() % 4 == 0)
			(*server)->call(Kind::Fetch, *arena, {{1, first, nr}}, 1000);
	}
	stop = true;
	for (std::thread &thread : threads)
		thread.join();

	FaultStats stats = (*server)->stats();
	EXPECT_GE(stats.nr_spilled, enough_spills);
	EXPECT_GT(stats.nr_spill_aborted, 0u);
	EXPECT_EQ(stats.nr_lost, 0u);
	for (Writer &writer : writers) {
		writer.check_all();
		EXPECT_EQ(writer.nr_wrong, 0u);
		EXPECT_GT(writer.nr_ops, 0u);
		printf("# %lu operations, ", writer.nr_ops);
	}
	printf("%lu spills (%lu clean), %lu aborted, %lu restored, p50 %lu us, p99 %lu us\n",
	       stats.nr_spilled, stats.nr_spilled_clean, stats.nr_spill_aborted, stats.nr_restored,
	       stats.restore_p50_ns / 1000, stats.restore_p99_ns / 1000);
}

TEST(Race, WritesAgainstTenThousandSpills)
{
	race(false);
}

TEST(Race, WritesAndLeasesAgainstTenThousandSpills)
{
	race(true);
}

} // namespace
