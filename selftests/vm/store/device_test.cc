/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store on a raw NVMe drive, alone and beside a file, in a guest whose drive may be lost. */
#include "lib/store_fixture.h"

#include "sys/spill_store_inspect.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

using namespace cxlkv;

namespace {

constexpr const char *kDrive = "/dev/nvme0n1";

class StoreDevice : public test::StoreTest {
protected:
	void SetUp() override
	{
		StoreTest::SetUp();
		int fd = -1;
		/* The ring of the last test's store may still be taken apart. */
		for (int i = 0; i < 200 && fd < 0; i++) {
			fd = ::open(kDrive, O_RDWR | O_EXCL);
			if (fd < 0)
				usleep(50 * 1000);
		}
		ASSERT_GE(fd, 0) << kDrive << ": " << strerror(errno);
		std::vector<char> zeros(64 << 10);
		ASSERT_EQ(pwrite(fd, zeros.data(), zeros.size(), 0), 64 << 10);
		fsync(fd);
		close(fd);
		options_.path = kDrive;
		options_.size_bytes = 64u << 20;
	}
	void put_all(uint64_t arena, uint32_t nr, uint32_t generation)
	{
		for (uint32_t i = 0; i < nr; i += 4)
			ASSERT_EQ(driver_->put(arena, i, 4, kBytes, generation), 0);
	}
	uint32_t nr_good(uint64_t arena, uint32_t nr, uint32_t generation)
	{
		uint32_t good = 0;
		for (uint32_t i = 0; i < nr; i++) {
			int result = driver_->check(arena, i, kBytes, generation);
			EXPECT_NE(result, EILSEQ);
			good += result == 0;
		}
		return good;
	}
};

} // namespace

TEST_F(StoreDevice, BlocksSurviveAKill)
{
	ASSERT_TRUE(killed_after([this] {
		open();
		put_all(1, 200, 1);
	}));
	open();
	EXPECT_EQ(nr_good(1, 200, 1), 200u);
	EXPECT_LE(store_->stats().capacity_bytes, 64u << 20) << "the cap, not the drive's size";
}

TEST_F(StoreDevice, SmallerCapIsKept)
{
	open();
	put_all(1, 1600, 1);
	for (uint32_t i = 0; i < 1400; i++)
		store_->drop({1, i});
	ASSERT_TRUE(store_->sync());
	options_.size_bytes = 20u << 20;
	open();
	EXPECT_LE(store_->stats().capacity_bytes, 20u << 20);
	EXPECT_EQ(nr_good(1, 1600, 1), 200u);
	open();
	EXPECT_EQ(nr_good(1, 1600, 1), 200u);
}

TEST_F(StoreDevice, IsLockedAgainstASecondUser)
{
	open();
	EXPECT_EQ(SpillStore::open(options_).error().code, EBUSY);
}

TEST_F(StoreDevice, DroppedBytesAreDiscarded)
{
	options_.wipe = StoreOptions::Wipe::Secure;
	open();
	put_all(1, 64, 1);
	store_->drop_arena(1);
	for (int tries = 0; tries < 3000 && store_->stats().unwiped_bytes; tries++)
		driver_->settle_once();
	EXPECT_EQ(store_->stats().unwiped_bytes, 0u);
	store_.reset();
	std::vector<std::byte> drive(64u << 20), block(kBytes);
	int fd = ::open(kDrive, O_RDONLY | O_DIRECT);
	auto buffer = aligned_buffer(drive.size());
	ASSERT_EQ(pread(fd, buffer.get(), drive.size(), 0), static_cast<ssize_t>(drive.size()));
	close(fd);
	for (uint32_t i = 0; i < 64; i++) {
		test::fill_block(block.data(), kBytes, 1, i, 1);
		EXPECT_EQ(memmem(buffer.get(), drive.size(), block.data() + 64, 256), nullptr) << i;
	}
}

TEST_F(StoreDevice, DriveAndFileLosingTheDrive)
{
	options_.path = directory_ + "/spill";
	options_.more_paths = {kDrive};
	open();
	for (uint64_t arena = 1; arena <= 8; arena++)
		put_all(arena, 16, 1);
	store_.reset();
	options_.more_paths = {"/dev/nvme9n1"}; /* as if it were gone */
	open();
	uint32_t good = 0;
	for (uint64_t arena = 1; arena <= 8; arena++)
		good += nr_good(arena, 16, 1);
	EXPECT_GT(good, 0u);
	EXPECT_LT(good, 8 * 16u);
	store_.reset();
	options_.more_paths = {kDrive}; /* and back */
	open();
	good = 0;
	for (uint64_t arena = 1; arena <= 8; arena++)
		good += nr_good(arena, 16, 1);
	EXPECT_EQ(good, 8 * 16u);
}
