/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that were to be on one node and are on the other one, as of a node that is full. */
#include "sys/placement.h"

#include "lib/arena_client.h"
#include "sys/uffd.h"

#include <gtest/gtest.h>
#include <numa.h>

namespace cxlkv::test {

namespace {

constexpr int kHot = 0, kWarm = 1;

bool operator==(const Extent &a, const Extent &b)
{
	return a.arena == b.arena && a.first == b.first && a.nr == b.nr;
}

class PlacementTest : public testing::Test {
protected:
	void SetUp() override
	{
		if (numa_node_size64(kWarm, nullptr) <= 0)
			GTEST_SKIP() << "node 1 has no memory";
		auto client = ArenaClient::create(small_geometry(8));
		ASSERT_TRUE(client) << client.error().what;
		client_ = std::move(*client);
		auto arena = client_->arena(1, 1);
		ASSERT_TRUE(arena) << arena.error().what;
		arena_ = std::move(*arena);
	}

	/* With pages on one node, whatever the daemon believes. */
	void make(uint32_t first, uint32_t nr, Where on, Where booked)
	{
		ASSERT_TRUE(placement_.place_slot(*arena_, 0, on));
		ASSERT_EQ(uffd::zeropage(arena_->uffd(), arena_->client_address(first),
					 uint64_t{nr} * arena_->geometry.block_bytes),
			  0);
		for (uint32_t block = first; block < first + nr; block++) {
			arena_->publish(block, CXL_KV_RESIDENT);
			arena_->set_where(block, booked);
		}
	}

	const Placement placement_{{kHot}, {kWarm}};
	std::unique_ptr<ArenaClient> client_;
	std::shared_ptr<Arena> arena_;
};

} // namespace

TEST_F(PlacementTest, BooksBlocksWhereTheirPagesAre)
{
	make(0, 4, Where::Warm, Where::Hot);
	make(4, 2, Where::Hot, Where::Hot);
	make(6, 2, Where::Hot, Where::Warm);
	const Placement::Seen seen = placement_.look(*arena_, {1, 0, 8});
	ASSERT_EQ(seen.elsewhere.size(), 2u);
	EXPECT_TRUE(seen.elsewhere[0] == (Extent{1, 0, 4}));
	EXPECT_TRUE(seen.elsewhere[1] == (Extent{1, 6, 2}));
	EXPECT_TRUE(seen.busy.empty());
	for (uint32_t block = 0; block < 8; block++)
		EXPECT_EQ(arena_->where(block), block < 4 ? Where::Warm : Where::Hot) << block;
	EXPECT_EQ(arena_->bytes.hot, 4u * arena_->geometry.block_bytes);
	EXPECT_EQ(arena_->bytes.warm, 4u * arena_->geometry.block_bytes);
	EXPECT_TRUE(placement_.look(*arena_, {1, 0, 8}).elsewhere.empty());
}

TEST_F(PlacementTest, LeavesAloneWhatOthersWorkOn)
{
	make(0, 4, Where::Warm, Where::Hot);
	ASSERT_TRUE(arena_->try_busy(2));
	const Placement::Seen seen = placement_.look(*arena_, {1, 0, 4});
	ASSERT_EQ(seen.busy.size(), 1u);
	EXPECT_TRUE(seen.busy[0] == (Extent{1, 2, 1}));
	EXPECT_EQ(arena_->where(2), Where::Hot);
	EXPECT_FALSE(arena_->try_busy(2)) << "it was given back";
	EXPECT_TRUE(arena_->try_busy(1)) << "it is still claimed";
}

TEST_F(PlacementTest, MakesNothingOfHoles)
{
	make(0, 2, Where::Warm, Where::Hot);
	const uint64_t before = client_->resident_bytes();
	/* Booked, and dropped by the client meanwhile. */
	arena_->set_where(2, Where::Hot);
	const Placement::Seen seen = placement_.look(*arena_, {1, 0, 8});
	ASSERT_EQ(seen.elsewhere.size(), 1u);
	EXPECT_TRUE(seen.elsewhere[0] == (Extent{1, 0, 2}));
	EXPECT_EQ(arena_->where(2), Where::Hot);
	EXPECT_EQ(arena_->where(5), Where::Empty);
	EXPECT_EQ(client_->resident_bytes(), before);
}

} // namespace cxlkv::test
