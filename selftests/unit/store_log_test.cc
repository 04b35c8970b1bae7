/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The log below the store: cleaning, checkpoints, damage, several files, caps and wiping. */
#include "lib/store_fixture.h"

#include "sys/spill_store_disk.h"

#include <fcntl.h>

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

	int put(uint32_t first, uint32_t nr)
	{
		int result = 0;
		generation_++;
		/* Upkeep may need a moment to make room. */
		for (int tries = 0; tries < 200; tries++) {
			result = driver_->put(1, first, nr, kBytes, generation_);
			if (result != ENOSPC)
				break;
			driver_->settle_once();
		}
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
