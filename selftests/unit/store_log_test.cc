/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The log below the store: cleaning, checkpoints, damage, several files, caps and wiping. */
#include "lib/store_fixture.h"

#include "sys/spill_store_inspect.h"

#include <fcntl.h>
#include <set>

using namespace cxlkv;
using cxlkv::test::StoreTest;

namespace {

class StoreLogTest : public StoreTest {
protected:
	void SetUp() override
	{
		StoreTest::SetUp();
		options_.size_bytes = 64u << 20; /* more than 200 segments */
	}

	/* What each block of arena 1 must hold; absent = dropped. */
	std::map<uint32_t, uint32_t> oracle_;
	uint32_t generation_ = 0;

	/* Upkeep may need a moment to make room. */
	int put_when_room(uint64_t arena, uint32_t first, uint32_t nr, uint32_t generation)
	{
		int result = 0;
		for (int tries = 0; tries < 200; tries++) {
			result = driver_->put(arena, first, nr, kBytes, generation);
			if (result != ENOSPC)
				break;
			driver_->settle_once();
		}
		return result;
	}
	int put(uint32_t first, uint32_t nr)
	{
		int result = put_when_room(1, first, nr, ++generation_);
		for (uint32_t i = 0; !result && i < nr; i++)
			oracle_[first + i] = generation_;
		return result;
	}
	void drop(uint32_t block)
	{
		store_->drop({1, block});
		oracle_.erase(block);
	}
	/* Right bytes everywhere, nothing where nothing should be. */
	void expect_oracle(uint32_t nr_blocks)
	{
		for (uint32_t i = 0; i < nr_blocks; i++) {
			auto it = oracle_.find(i);
			ASSERT_EQ(
				driver_->check(1, i, kBytes, it == oracle_.end() ? 0 : it->second),
				it == oracle_.end() ? ENOENT : 0)
				<< "block " << i;
		}
	}
	void random_work(uint32_t nr_blocks, uint32_t rounds, uint64_t seed)
	{
		std::mt19937_64 random(seed);
		for (uint32_t i = 0; i < rounds; i++) {
			uint32_t first = random() % nr_blocks;
			uint32_t nr = std::min<uint32_t>(1 + random() % 7, nr_blocks - first);
			if (random() % 5 == 0)
				drop(first);
			else
				ASSERT_EQ(put(first, nr), 0) << "round " << i;
		}
	}
	void flip(uint64_t offset, uint8_t mask)
	{
		uint8_t byte = 0;
		int fd = ::open(options_.path.c_str(), O_RDWR);
		ASSERT_EQ(pread(fd, &byte, 1, static_cast<off_t>(offset)), 1);
		byte ^= mask;
		ASSERT_EQ(pwrite(fd, &byte, 1, static_cast<off_t>(offset)), 1);
		close(fd);
	}
};

} // namespace

TEST_F(StoreLogTest, CleaningKeepsEveryBlock)
{
	open();
	uint32_t nr_blocks = static_cast<uint32_t>(store_->stats().capacity_bytes / 2 / kBytes);
	for (uint32_t i = 0; i < nr_blocks; i += 4)
		ASSERT_EQ(put(i, std::min(4u, nr_blocks - i)), 0);
	ASSERT_NO_FATAL_FAILURE(random_work(nr_blocks, 1500, 1));
	EXPECT_GT(store_->stats().cleaned_bytes, 0u) << "the work was too small to need cleaning";
	ASSERT_NO_FATAL_FAILURE(expect_oracle(nr_blocks));
	open();
	ASSERT_NO_FATAL_FAILURE(expect_oracle(nr_blocks));
}

/* Arenas that have blocks, dead ones too, in each segment. */
static std::map<uint32_t, std::set<uint64_t>> arenas_by_segment(const std::string &path)
{
	std::map<uint32_t, std::set<uint64_t>> out;
	auto image = load_image(path);
	EXPECT_TRUE(image);
	for (uint32_t i = 0; image && i < image->log.table.size(); i++) {
		for (const ExtentEntry &extent : image->log.table.at(i).extents)
			out[i].insert(extent.arena);
	}
	return out;
}

TEST_F(StoreLogTest, WhatIsMovedKeepsApartFromWhatIsWritten)
{
	open();
	uint32_t nr_long = static_cast<uint32_t>(store_->stats().capacity_bytes / 2 / kBytes);
	/* Arena 1 stays, between blocks of arena 2 that are written over and over. */
	for (uint32_t i = 0; i + 4 <= nr_long; i += 4) {
		ASSERT_EQ(put(i, 4), 0);
		ASSERT_EQ(put_when_room(2, i % 400, 4, 1), 0);
	}
	for (uint32_t i = 0; i < 8000; i += 4)
		ASSERT_EQ(put_when_room(2, i % 400, 4, i), 0);
	ASSERT_GT(store_->stats().cleaned_bytes, 0u);
	ASSERT_NO_FATAL_FAILURE(expect_oracle(nr_long / 4 * 4));
	ASSERT_TRUE(store_->sync());
	store_.reset();
	/* It was never written alone: only the cleaner can have put it there. */
	uint32_t moved = 0;
	for (auto &[segment, arenas] : arenas_by_segment(options_.path))
		moved += arenas == std::set<uint64_t>{1};
	EXPECT_GT(moved, 20u) << "what lives long lies among what does not";
}

TEST_F(StoreLogTest, SegmentsAreFilledToTheEnd)
{
	open();
	/* Extents of 7 blocks would leave a gap at the end of every segment. */
	for (uint32_t i = 0; i < 700; i += 7)
		ASSERT_EQ(put(i, 7), 0);
	ASSERT_TRUE(store_->sync());
	store_.reset();
	uint32_t nr = 0;
	{
		auto image = load_image(options_.path);
		ASSERT_TRUE(image);
		for (uint32_t i = 0; i < image->log.table.size(); i++) {
			const Segment &segment = image->log.table.at(i);
			if (segment.state != Segment::State::Closed)
				continue;
			nr++;
			EXPECT_LT(image->super.segment_bytes - segment.used_bytes,
				  (64u << 10) + 2 * disk::kPage);
		}
	}
	EXPECT_GT(nr, 20u);
	open();
	ASSERT_NO_FATAL_FAILURE(expect_oracle(700));
}

TEST_F(StoreLogTest, KillAtAnyMomentOfUpkeepLosesNothing)
{
	uint32_t nr_blocks = 0;
	{
		open();
		nr_blocks = static_cast<uint32_t>(store_->stats().capacity_bytes / 2 / kBytes);
		for (uint32_t i = 0; i < nr_blocks; i += 4)
			ASSERT_EQ(put(i, std::min(4u, nr_blocks - i)), 0);
		store_.reset();
	}
	/* Child and parent do the same work; the child is killed after it, wherever its upkeep is
	 * then. */
	for (uint32_t round = 0; round < 12; round++) {
		bool killed = killed_after([&] {
			open();
			random_work(nr_blocks, 40 + round, round);
			while (store_->nr_in_flight()) /* tombstones */
				driver_->settle_once();
		});
		ASSERT_TRUE(killed);
		std::mt19937_64 random(round);
		for (uint32_t i = 0; i < 40 + round; i++) {
			uint32_t first = random() % nr_blocks;
			uint32_t nr = std::min<uint32_t>(1 + random() % 7, nr_blocks - first);
			bool dropped = random() % 5 == 0;
			generation_ += !dropped;
			for (uint32_t n = 0; n < nr; n++) {
				if (!dropped)
					oracle_[first + n] = generation_;
			}
			if (dropped)
				oracle_.erase(first);
		}
		open();
		ASSERT_NO_FATAL_FAILURE(expect_oracle(nr_blocks)) << "round " << round;
		store_.reset();
	}
}
