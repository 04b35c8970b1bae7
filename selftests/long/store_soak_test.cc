/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A full store under load for a long time (CXL_KV_SOAK_SECONDS, 600 by default):
 * writes, overwrites, drops, abandoned writes and reads of what was written, with
 * no room to spare. At the end nothing was lost or wrong, the counters add up, and
 * memory is what it was when the store had just become full.
 */
#include "lib/store_fixture.h"

#include "base/log.h"

#include <fstream>

using namespace cxlkv;
using Clock = std::chrono::steady_clock;

namespace {

constexpr uint32_t kBytes = 16384, kRun = 8, kArena = 3;

uint64_t resident_bytes()
{
	uint64_t size = 0, resident = 0;
	std::ifstream("/proc/self/statm") >> size >> resident;
	return resident * 4096;
}

class Soak : public test::StoreTest {
protected:
	/* Generation of each block that the store must have; absent: it must have none. */
	std::map<uint32_t, uint32_t> oracle_;
	std::mt19937_64 random_{1};
	uint32_t generation_ = 0, nr_blocks_ = 0;
	uint64_t nr_taken_ = 0, nr_refused_ = 0, nr_checked_ = 0, nr_wrong_ = 0;

	void write(uint32_t first, uint32_t nr)
	{
		auto results = driver_->write(kArena, first, nr, kBytes, ++generation_);
		if (results.size() == 1 && nr > 1) {
			ASSERT_EQ(results[0], ENOSPC);
			nr_refused_++;
			return;
		}
		for (uint32_t i = 0; i < nr; i++) {
			if (results[i] == ENOSPC)
				continue;
			ASSERT_EQ(results[i], 0);
			nr_taken_++;
			if (random_() % 32 == 0) {
				store_->abandon({kArena, first + i});
				continue;
			}
			store_->commit({kArena, first + i});
			oracle_[first + i] = generation_;
		}
	}
	void check(uint32_t block)
	{
		auto it = oracle_.find(block);
		uint32_t wanted = it == oracle_.end() ? 0 : it->second;
		nr_checked_++;
		nr_wrong_ += driver_->check(kArena, block, kBytes, wanted) != (wanted ? 0 : ENOENT);
	}
	/* Twice as many blocks as fit: it is full nearly all the time. */
	void step()
	{
		uint32_t block = random_() % (nr_blocks_ - kRun);
		switch (random_() % 8) {
		case 0:
		case 1:
			check(block);
			break;
		case 2:
			for (uint32_t i = 0; i < kRun; i++) {
				store_->drop({kArena, block + i});
				oracle_.erase(block + i);
			}
			driver_->settle_once();
			break;
		default:
			write(block, 2 + random_() % (kRun - 1));
		}
	}
};

} // namespace

TEST_F(Soak, FullStoreStaysRightAndSmall)
{
	const char *wanted = getenv("CXL_KV_SOAK_SECONDS");
	auto end = Clock::now() + std::chrono::seconds(wanted ? atoi(wanted) : 600);

	set_log_level(Level::Error);
	options_.size_bytes = 256u << 20;
	open();
	nr_blocks_ = static_cast<uint32_t>(2 * store_->stats().capacity_bytes / kBytes);
	for (uint32_t i = 0; i + kRun <= nr_blocks_ && !nr_refused_; i += kRun)
		ASSERT_NO_FATAL_FAILURE(write(i, kRun));
	ASSERT_GT(nr_refused_, 0u) << "the store never became full";
	/* What it needs to move and drop at all is there after a while. */
	for (uint32_t i = 0; i < 5000; i++)
		ASSERT_NO_FATAL_FAILURE(step());
	uint64_t before = resident_bytes();
	while (Clock::now() < end && !nr_wrong_)
		ASSERT_NO_FATAL_FAILURE(step());
	uint64_t after = resident_bytes();

	EXPECT_EQ(nr_wrong_, 0u);
	EXPECT_LT(after, before + before / 10 + (8u << 20)) << "memory grew from " << before;
	ASSERT_TRUE(store_->sync());
	StoreStats stats = store_->stats();
	EXPECT_EQ(stats.nr_records, oracle_.size());
	EXPECT_EQ(stats.used_bytes, oracle_.size() * uint64_t{kBytes});
	EXPECT_EQ(stats.user_bytes, nr_taken_ * kBytes);
	EXPECT_GE(stats.written_bytes, stats.user_bytes + stats.cleaned_bytes);
	EXPECT_EQ(stats.nr_checksum_failures + stats.nr_io_errors, 0u);
	EXPECT_GE(stats.nr_no_space, nr_refused_);
	for (uint32_t i = 0; i < nr_blocks_ && !nr_wrong_; i++)
		check(i);
	open(); /* and again from the device */
	for (uint32_t i = 0; i < nr_blocks_ && !nr_wrong_; i++)
		check(i);
	EXPECT_EQ(nr_wrong_, 0u);
	printf("# %lu blocks written, %lu writes refused, %lu reads checked; %.2f bytes to the "
	       "device a byte; %lu checkpoints; %lu MiB resident, %lu at the start\n",
	       nr_taken_, nr_refused_, nr_checked_,
	       static_cast<double>(stats.written_bytes) / static_cast<double>(stats.user_bytes),
	       stats.nr_checkpoints, after >> 20, before >> 20);
}
