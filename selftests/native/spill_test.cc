/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks leave memory and come back as they were; what cannot be had is an answer, not other bytes.
 */
#include "lib/arena_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

class Spill : public ArenaTest {};

TEST_F(Spill, RoundTripByTouch)
{
	make(0, 40, 1);
	EXPECT_EQ(client->resident_bytes(), 40u * 65536);

	Outcome out = call(Kind::Spill, 0, 40);
	EXPECT_EQ(out.error, 0);
	EXPECT_EQ(out.nr_done, 40u);
	EXPECT_EQ(client->resident_bytes(), 0u);
	EXPECT_EQ(arena->bytes.cold, 40u * 65536);
	for (uint32_t block = 0; block < 40; block++)
		EXPECT_EQ(client->state(block), CXL_KV_COLD);

	for (uint32_t block = 0; block < 40; block++)
		EXPECT_EQ(client->nr_wrong(block, 1), 0u) << block;
	EXPECT_EQ(client->resident_bytes(), 40u * 65536);
	EXPECT_EQ(server->stats().nr_demand_restored, 40u);
}

TEST_F(Spill, FetchBringsTheFullSetBack)
{
	make(0, 64, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 64).nr_done, 64u);

	Outcome out = call(Kind::Fetch, 10, 30, 5000);
	EXPECT_EQ(out.error, 0);
	EXPECT_EQ(out.nr_done, 30u);
	EXPECT_EQ(client->resident_bytes(), 30u * 65536);
	EXPECT_EQ(server->stats().nr_demand_restored, 0u);
	for (uint32_t block = 10; block < 40; block++)
		EXPECT_EQ(client->nr_wrong(block, 1), 0u) << block;
}

TEST_F(Spill, UnwrittenBlockLeavesAgainWithoutAWrite)
{
	make(0, 16, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 16).nr_done, 16u);
	ASSERT_EQ(call(Kind::Fetch, 0, 16).error, 0);
	for (uint32_t block = 0; block < 16; block++) {
		EXPECT_TRUE(client->word(block) & CXL_KV_WORD_CLEAN) << block;
		EXPECT_EQ(client->nr_wrong(block, 1), 0u) << block;
	}
	client->fill(3, 2); /* one of them is written */
	ASSERT_EQ(call(Kind::Spill, 0, 3).nr_done, 3u);
	ASSERT_EQ(call(Kind::Spill, 4, 12).nr_done, 12u);
	EXPECT_EQ(server->stats().nr_spilled_clean, 15u);

	EXPECT_FALSE(client->word(3) & CXL_KV_WORD_CLEAN);
	ASSERT_EQ(call(Kind::Spill, 3, 1).nr_done, 1u);
	for (uint32_t block = 0; block < 16; block++)
		EXPECT_EQ(client->nr_wrong(block, block == 3 ? 2 : 1), 0u) << block;
}

TEST_F(Spill, LeasedBlocksStay)
{
	make(0, 8, 1);
	client->lease(2);
	client->lease(7);
	EXPECT_EQ(call(Kind::Spill, 0, 8).nr_done, 6u);
	EXPECT_EQ(client->state(2), CXL_KV_RESIDENT);
	EXPECT_EQ(client->state(7), CXL_KV_RESIDENT);
	EXPECT_EQ(client->word(2) & CXL_KV_WORD_LEASES_MASK, CXL_KV_WORD_LEASES_ONE);
	EXPECT_EQ(server->stats().nr_spill_refused, 2u);
	EXPECT_EQ(call(Kind::Drop, 0, 8).error, EBUSY);
	client->unlease(2);
	EXPECT_EQ(call(Kind::Spill, 0, 8).nr_done, 1u);
}

TEST_F(Spill, LeaseDuringASpillAbortsIt)
{
	make(0, 4, 1);
	server->io().hold(true, false);
	Outcome out;
	std::atomic<bool> done = false;
	server->post(Kind::Spill, arena, {{1, 0, 4}}, 0,
		     [&](const Outcome &o) { out = o, done = true; });
	ASSERT_TRUE(eventually([&] {
		return client->state(3) == CXL_KV_SPILLING &&
		       server->io().nr_held(IoRequest::Op::Write);
	}));
	client->lease(1);
	server->io().release();
	ASSERT_TRUE(eventually([&] { return done.load(); }));
	EXPECT_EQ(out.nr_done, 3u);
	EXPECT_EQ(client->state(1), CXL_KV_RESIDENT);
	EXPECT_EQ(client->resident_bytes(), 65536u);
	EXPECT_EQ(server->stats().nr_spill_aborted, 1u);
	client->fill(1, 2); /* no longer protected */
	for (uint32_t block = 0; block < 4; block++)
		EXPECT_EQ(client->nr_wrong(block, block == 1 ? 2 : 1), 0u) << block;
}

TEST_F(Spill, WriteDuringASpillAbortsItAndLands)
{
	make(0, 4, 1);
	server->io().hold(true, false);
	std::atomic<bool> done = false;
	server->post(Kind::Spill, arena, {{1, 0, 4}}, 0, [&](const Outcome &) { done = true; });
	ASSERT_TRUE(eventually([&] { return server->io().nr_held(IoRequest::Op::Write) > 0; }));
	client->fill(2, 2); /* blocks until the event was answered */
	EXPECT_EQ(client->state(2), CXL_KV_RESIDENT);
	EXPECT_FALSE(done);
	/* It cannot leave again while its old write is in flight. */
	EXPECT_EQ(call(Kind::Spill, 2, 1).nr_done, 0u);
	server->io().release();
	ASSERT_TRUE(eventually([&] { return done.load(); }));
	EXPECT_EQ(server->stats().nr_spill_aborted, 1u);
	EXPECT_EQ(client->resident_bytes(), 65536u);
	ASSERT_EQ(call(Kind::Spill, 2, 1).nr_done, 1u);
	for (uint32_t block = 0; block < 4; block++)
		EXPECT_EQ(client->nr_wrong(block, block == 2 ? 2 : 1), 0u) << block;
}

TEST_F(Spill, SpillFileFullLeavesBlocksInMemory)
{
	begin({.store_bytes = 20 << 20}, 512); /* 32 MiB of blocks */
	make(0, 512, 1);
	Outcome out = call(Kind::Spill, 0, 512);
	EXPECT_EQ(out.error, ENOSPC);
	EXPECT_GT(out.nr_done, 0u);
	EXPECT_LT(out.nr_done, 512u);
	EXPECT_GT(server->stats().nr_spill_failed, 0u);
	EXPECT_EQ(client->resident_bytes(), (512 - out.nr_done) * 65536);
	for (uint32_t block = 0; block < 512; block++)
		ASSERT_EQ(client->nr_wrong(block, 1), 0u) << block;
}

TEST_F(Spill, DeviceErrorOnWriteLeavesBlocksInMemory)
{
	make(0, 32, 1);
	server->io().fail([](const IoRequest &io) -> std::optional<int> {
		if (io.is_write())
			return -EIO;
		return std::nullopt;
	});
	Outcome out = call(Kind::Spill, 0, 32);
	EXPECT_EQ(out.error, EIO);
	EXPECT_EQ(out.nr_done, 0u);
	EXPECT_EQ(client->resident_bytes(), 32u * 65536);
	server->io().fail(nullptr);
	ASSERT_EQ(call(Kind::Spill, 0, 32).nr_done, 32u);
	for (uint32_t block = 0; block < 32; block++)
		ASSERT_EQ(client->nr_wrong(block, 1), 0u) << block;
}

TEST_F(Spill, DropForgetsAndFrees)
{
	make(0, 8, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 4).nr_done, 4u);
	ASSERT_EQ(call(Kind::Drop, 0, 8).error, 0);
	EXPECT_EQ(client->resident_bytes(), 0u);
	EXPECT_TRUE(eventually([&] { return server->stats().store.nr_records == 0; }));
	EXPECT_EQ(arena->bytes.cold + arena->bytes.hot, 0u);
	for (uint32_t block = 0; block < 8; block++) {
		EXPECT_EQ(client->state(block), CXL_KV_EMPTY);
		EXPECT_EQ(client->block64(block)[17].load(), 0u);
	}
	EXPECT_EQ(call(Kind::Fetch, 9, 1).error, ENODATA);
}

TEST_F(Spill, DetachReturnsSpillSpace)
{
	make(0, 32, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 32).nr_done, 32u);
	EXPECT_GT(server->stats().store.used_bytes, 0u);
	ASSERT_EQ(server->call(Kind::Detach, arena).error, 0);
	EXPECT_EQ(server->stats().store.used_bytes, 0u);
	EXPECT_EQ(call(Kind::Fetch, 0, 1).error, ESRCH);
}

TEST_F(Spill, RequestsOutOfRangeAreRefused)
{
	make(0, 1, 1);
	EXPECT_EQ(call(Kind::Spill, 64, 1).error, EINVAL);
	EXPECT_EQ(call(Kind::Fetch, 1, 64).error, EINVAL);
	EXPECT_EQ(call(Kind::Make, 0xffffffff, 2).error, EINVAL);
	EXPECT_EQ(server->call(Kind::Make, arena, std::vector<Extent>(65, {1, 0, 1})).error,
		  EINVAL);
	EXPECT_EQ(server->call(Kind::Fetch, arena, {{1, 0, 0}, {1, 0, 1}, {1, 70, 0}}).nr_done, 1u);
}

/* Without the guard, the touch makes a zero page that the client then reads. */
TEST_F(Spill, StrayTouchOfAHoleFails)
{
	make(0, 2, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 2).nr_done, 2u);
	EXPECT_EQ(errno_of_system_call(arena->base()), EFAULT);
	EXPECT_EQ(madvise(arena->base() + 65536, 65536, MADV_POPULATE_READ), -1);
	EXPECT_EQ(errno, EFAULT);
	EXPECT_EQ(client->resident_bytes(), 0u);
	EXPECT_EQ(client->nr_wrong(0, 1), 0u);
}

/* A page that somebody made in a hole is not data. */
TEST_F(Spill, StrayPageInAHoleIsNeverServed)
{
	make(0, 3, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 3).nr_done, 3u);
	uint64_t junk = 0x6a756e6b;
	for (uint32_t block : {0u, 1u, 5u})
		ASSERT_EQ(pwrite(client->own_files().memory.get(), &junk, 8, block * 65536 + 8192),
			  8);
	EXPECT_EQ(client->nr_wrong(0, 1), 0u); /* by touch */
	ASSERT_EQ(call(Kind::Fetch, 1, 1).error, 0);
	EXPECT_EQ(client->nr_wrong(1, 1), 0u);
	EXPECT_EQ(client->block64(5)[1024].load(), 0u); /* never made: zero */
	client->fill(0, 2);
	ASSERT_EQ(call(Kind::Spill, 0, 3).nr_done, 2u);
	EXPECT_EQ(client->nr_wrong(0, 2), 0u);
}

/*
 * Pages that come back while the hole is made, here by writes to the file
 * behind the protocol's back: the punch is seen to have failed, and the bytes
 * return from the bounce buffer.
 */
TEST_F(Spill, PunchThatLeavesPagesIsUndone)
{
	make(0, 4, 1);
	std::atomic<bool> stop = false;
	std::thread intruder([&] {
		uint64_t right = ArenaClient::pattern(2, 1, 1024);
		while (!stop)
			ASSERT_EQ(pwrite(client->own_files().memory.get(), &right, 8,
					 2 * bytes + 8192),
				  8);
	});
	EXPECT_TRUE(eventually([&] {
		call(Kind::Spill, 0, 4);
		EXPECT_EQ(call(Kind::Fetch, 0, 4, 5000).error, 0);
		for (uint32_t block = 0; block < 4; block++)
			EXPECT_EQ(client->nr_wrong(block, 1), 0u) << block;
		return server->stats().nr_spill_failed >= 5;
	}));
	stop = true;
	intruder.join();
	ASSERT_GE(call(Kind::Spill, 0, 4).nr_done, 3u);
	for (uint32_t block = 0; block < 4; block++)
		EXPECT_EQ(client->nr_wrong(block, 1), 0u) << block;
}

/* Hostile: it empties its own file. Its own loss, and the server serves on. */
TEST_F(Spill, ClientThatPunchesItsOwnBlockLosesIt)
{
	make(0, 4, 1);
	ASSERT_EQ(fallocate(client->own_files().memory.get(),
			    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, bytes, bytes),
		  0);
	EXPECT_EQ(errno_of_system_call(client->block64(1)), EFAULT);
	EXPECT_EQ(client->state(1), CXL_KV_LOST);
	EXPECT_EQ(call(Kind::Fetch, 0, 4).error, EIO);
	EXPECT_EQ(client->nr_wrong(2, 1), 0u);
}

} // namespace
