/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store's contract: what was committed comes back, nothing else does. */
#include "lib/store_fixture.h"

#include "sys/spill_store_disk.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace cxlkv;
using cxlkv::test::StoreTest;

namespace {

mode_t mode_of(const std::string &path)
{
	struct stat st {};
	stat(path.c_str(), &st);
	return st.st_mode & 0777;
}

} // namespace

TEST(StoreChecksum, IsCrc32c)
{
	const char *text = "123456789"; /* the check value of the CRC catalogue and RFC 3720 */
	EXPECT_EQ(disk::crc32c(0, std::as_bytes(std::span(text, 9))), 0xe3069283u);
}

TEST_F(StoreTest, CommittedBlockComesBack)
{
	open();
	EXPECT_EQ(driver_->check(7, 0, kBytes, 1), ENOENT);
	ASSERT_EQ(driver_->write(7, 0, 4, kBytes, 1), std::vector<int>(4));
	EXPECT_FALSE(store_->contains({7, 2})) << "written is not committed";
	EXPECT_EQ(driver_->check(7, 2, kBytes, 1), ENOENT);
	for (uint32_t i = 0; i < 4; i++)
		store_->commit({7, i});
	EXPECT_TRUE(store_->contains({7, 2}));
	for (uint32_t i = 0; i < 4; i++)
		EXPECT_EQ(driver_->check(7, i, kBytes, 1), 0);
	EXPECT_EQ(driver_->check(8, 0, kBytes, 1), ENOENT) << "another arena";
	EXPECT_EQ(driver_->check(7, 2, 2 * kBytes, 1), EBADMSG) << "another size";
}

TEST_F(StoreTest, ReadSpansExtentsAndHoles)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 2, kBytes, 1), 0);
	ASSERT_EQ(driver_->put(1, 3, 3, kBytes, 1), 0);
	ASSERT_EQ(driver_->put(1, 4, 1, kBytes, 2), 0);
	std::vector<std::byte> got;
	EXPECT_EQ(driver_->read(1, 0, 7, kBytes, got),
		  (std::vector<int>{0, 0, ENOENT, 0, 0, 0, ENOENT}));
	std::vector<std::byte> want(kBytes);
	test::fill_block(want.data(), kBytes, 1, 4, 2);
	EXPECT_EQ(memcmp(want.data(), got.data() + 4 * kBytes, kBytes), 0)
		<< "the newer generation of block 4";
}

TEST_F(StoreTest, AbandonedWriteLeavesTheOldRecord)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 1, kBytes, 1), 0);
	driver_->write(1, 0, 1, kBytes, 2);
	store_->abandon({1, 0});
	EXPECT_EQ(driver_->check(1, 0, kBytes, 1), 0);
}

TEST_F(StoreTest, BadRequestsAreRefused)
{
	open();
	EXPECT_EQ(driver_->write(1, 0, 0, kBytes, 1)[0], EINVAL);
	EXPECT_EQ(driver_->write(1, UINT32_MAX, 2, kBytes, 1)[0], EINVAL) << "block numbers wrap";
	std::vector<std::byte> out;
	EXPECT_EQ(driver_->read(1, 0, 1, 1000, out)[0], EINVAL);
	Bounce buffer = store_->take_buffer();
	EXPECT_EQ(store_->write(1, 0, 9, kBytes, 1, buffer, 0).error().code, EINVAL)
		<< "longer than an extent";
	Bounce stranger{nullptr, 99};
	EXPECT_EQ(store_->write(1, 0, 1, kBytes, 1, stranger, 0).error().code, EINVAL);
}

TEST_F(StoreTest, RecoversAfterClose)
{
	open();
	for (uint32_t i = 0; i < 40; i++)
		ASSERT_EQ(driver_->put(3, i * 4, 4, kBytes, i), 0);
	open();
	for (uint32_t i = 0; i < 160; i++)
		EXPECT_EQ(driver_->check(3, i, kBytes, i / 4), 0) << i;
}

TEST_F(StoreTest, NewestRecordWinsAfterRestart)
{
	open();
	for (uint32_t generation = 1; generation <= 5; generation++)
		ASSERT_EQ(driver_->put(3, 10, 2, kBytes, generation), 0);
	open();
	EXPECT_EQ(driver_->check(3, 10, kBytes, 5), 0);
	ASSERT_EQ(driver_->put(3, 10, 1, kBytes, 6), 0) << "versions go on where they were";
	open();
	EXPECT_EQ(driver_->check(3, 10, kBytes, 6), 0);
	EXPECT_EQ(driver_->check(3, 11, kBytes, 5), 0);
}

TEST_F(StoreTest, DroppedBlockStaysDroppedAfterRestart)
{
	open();
	ASSERT_EQ(driver_->put(3, 0, 4, kBytes, 1), 0);
	ASSERT_EQ(driver_->put(3, 1, 1, kBytes, 2), 0)
		<< "an older record of block 1 is on the device";
	ASSERT_EQ(driver_->put(4, 0, 4, kBytes, 1), 0);
	driver_->write(3, 9, 1, kBytes, 1);
	store_->abandon({3, 9});
	store_->drop({3, 9});
	store_->drop({3, 1});
	store_->drop({3, 2});
	store_->drop_arena(4);
	ASSERT_EQ(driver_->put(4, 2, 1, kBytes, 7), 0) << "written after the drop";
	open();
	EXPECT_EQ(driver_->check(3, 0, kBytes, 1), 0);
	EXPECT_FALSE(store_->contains({3, 1}));
	EXPECT_FALSE(store_->contains({3, 2}));
	EXPECT_FALSE(store_->contains({3, 9})) << "abandoned, then dropped";
	EXPECT_FALSE(store_->contains({4, 0}));
	EXPECT_EQ(driver_->check(4, 2, kBytes, 7), 0);
}

TEST_F(StoreTest, FullStoreRefusesAndKeepsItsCap)
{
	open();
	uint32_t nr = 0;
	int result = 0;
	while ((result = driver_->put(1, nr * 8, 8, kBytes, 1)) == 0)
		nr++;
	EXPECT_EQ(result, ENOSPC);
	EXPECT_GE(uint64_t{nr} * 8 * kBytes, options_.size_bytes * 6 / 10);
	EXPECT_EQ(store_->stats().nr_no_space, 1u);
	for (uint32_t i = 0; i < nr * 8; i++)
		ASSERT_EQ(driver_->check(1, i, kBytes, 1), 0) << i;
	EXPECT_LE(std::filesystem::file_size(options_.path), options_.size_bytes);
	/* Room comes back, once the tombstones are on the disk. */
	for (uint32_t i = 0; i < nr * 8; i++)
		store_->drop({1, i});
	for (auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
	     (result = driver_->put(2, 0, 8, kBytes, 1)) == ENOSPC &&
	     std::chrono::steady_clock::now() < end;)
		store_->poll();
	EXPECT_EQ(result, 0);
}

TEST_F(StoreTest, SecondOpenIsLockedOut)
{
	open();
	auto second = SpillStore::open(options_);
	ASSERT_FALSE(second);
	EXPECT_EQ(second.error().code, EBUSY);
	EXPECT_NE(second.error().what.find(std::to_string(getpid())), std::string::npos)
		<< second.error().what;
}

TEST_F(StoreTest, ReopensAtOnceAfterKill)
{
	ASSERT_TRUE(killed_after([this] {
		open();
		if (driver_->put(1, 0, 8, kBytes, 1))
			_exit(1);
	}));
	open();
	for (uint32_t i = 0; i < 8; i++)
		EXPECT_EQ(driver_->check(1, i, kBytes, 1), 0);
}

TEST_F(StoreTest, DeviceErrorsAreErrorsOfTheBlocks)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 1), 0);
	io_->fault = [](const IoRequest &) { return -EREMOTEIO; };
	EXPECT_EQ(driver_->check(1, 0, kBytes, 1), EIO);
	EXPECT_EQ(driver_->put(1, 8, 1, kBytes, 1), EIO);
	io_->fault = [](const IoRequest &) { return -ENODEV; };
	EXPECT_EQ(driver_->put(1, 0, 1, kBytes, 2), EIO) << "the device is gone";
	io_->fault = nullptr;
	EXPECT_EQ(driver_->check(1, 0, kBytes, 1), 0) << "the failed write left the old record";
	EXPECT_EQ(driver_->put(1, 8, 1, kBytes, 1), 0);
	EXPECT_EQ(driver_->check(1, 8, kBytes, 1), 0);
	EXPECT_GE(store_->stats().nr_io_errors, 2u);
}

TEST_F(StoreTest, DeviceWithoutRoomIsNoSpace)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 1), 0);
	io_->fault = [](const IoRequest &r) {
		bool extent = r.op == IoRequest::Op::Write && r.bytes >= kBytes;
		return extent ? std::optional(-ENOSPC) : std::nullopt;
	};
	EXPECT_EQ(driver_->put(1, 8, 1, kBytes, 1), ENOSPC);
	EXPECT_EQ(store_->stats().nr_no_space, 1u);
	io_->fault = nullptr;
	EXPECT_EQ(driver_->put(1, 8, 1, kBytes, 1), 0);
}

TEST_F(StoreTest, FailedWritesHideNothingAfterAKill)
{
	/*
	 * Failures in a row, each of which makes the log go on elsewhere: more than
	 * recovery would pass over. Then one that succeeds.
	 */
	constexpr uint32_t kInARow = 24;
	ASSERT_TRUE(killed_after([this] {
		open();
		for (uint32_t i = 0; i < 4; i++) {
			io_->fault = [](const IoRequest &r) {
				bool extent = r.op == IoRequest::Op::Write && r.bytes >= kBytes;
				return extent ? std::optional(-EIO) : std::nullopt;
			};
			for (uint32_t n = 0; n < kInARow; n++)
				driver_->put(1, 0, 8, kBytes, 1);
			io_->fault = nullptr;
			if (driver_->put(2, i, 1, kBytes, i))
				_exit(1);
		}
	}));
	open();
	for (uint32_t i = 0; i < 4; i++)
		EXPECT_EQ(driver_->check(2, i, kBytes, i), 0) << i;
}

TEST_F(StoreTest, NextReadIsWithTheDeviceWhileOneIsVerified)
{
	options_.queue_depth = 1;
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 1), 0);
	Bounce first = store_->take_buffer(), second = store_->take_buffer();
	/* What is spoiled when the second read begins is seen by the checksum of the first. Those
	 * of its attempts that find the queue full come here too. */
	io_->fault = [&](const IoRequest &request) {
		if (request.buffer == second.index)
			memset(first.data, 0x5a, 512);
		return std::nullopt;
	};
	ASSERT_TRUE(store_->read(1, 0, 1, kBytes, first, 1));
	ASSERT_TRUE(store_->read(1, 1, 1, kBytes, second, 2));
	std::map<uint64_t, int> results;
	for (auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
	     results.size() < 2 && std::chrono::steady_clock::now() < end;) {
		pollfd waiter{store_->event_fd(), POLLIN, 0};
		poll(&waiter, 1, 100);
		for (StoreCompletion &one : store_->poll()) {
			results[one.tag] = one.results[0];
			store_->give_buffer(one.buffer);
		}
	}
	EXPECT_EQ(results[1], EBADMSG) << "verified before the next read began";
	EXPECT_EQ(results[2], 0);
}

/* Who copies each block after it was verified finds it in a cache; who waits must not wait in vain.
 */
TEST_F(StoreTest, OfReadsThatEndTogetherEachIsVerifiedWhenItIsHandedOut)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 3, kBytes, 1), 0);
	io_->fault = [](const IoRequest &) { return std::optional<int>(-EIO); };
	for (uint32_t i = 0; i < 3; i++)
		ASSERT_TRUE(store_->read(1, i, 1, kBytes, store_->take_buffer(), i));
	for (uint32_t i = 0; i < 3; i++) {
		pollfd waiter{store_->event_fd(), POLLIN, 0};
		ASSERT_EQ(poll(&waiter, 1, 10000), 1) << i;
		std::vector<StoreCompletion> done = store_->poll();
		ASSERT_EQ(done.size(), 1u);
		EXPECT_EQ(done[0].tag, i);
		store_->give_buffer(done[0].buffer);
	}
}

TEST_F(StoreTest, ShortReadGivesTheBlocksThatCame)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 1), 0);
	std::vector<std::byte> got;
	io_->fault = [](IoRequest &r) {
		r.bytes = 2 * kBytes + 4096;
		return std::nullopt;
	};
	EXPECT_EQ(driver_->read(1, 0, 4, kBytes, got), (std::vector<int>{0, 0, EIO, EIO}));
}

TEST_F(StoreTest, ShortWriteIsAnErrorAndLeavesTheOldRecord)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 1), 0);
	io_->fault = [](IoRequest &r) {
		r.bytes = 2 * kBytes;
		return std::nullopt;
	};
	EXPECT_EQ(driver_->write(1, 0, 4, kBytes, 2), std::vector<int>(4, EIO));
	io_->fault = nullptr;
	for (uint32_t i = 0; i < 4; i++)
		EXPECT_EQ(driver_->check(1, i, kBytes, 1), 0);
}

TEST_F(StoreTest, VersionsFromTheFutureAndThePastAreRefused)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 1), 0);
	store_.reset();
	for (uint32_t version : {disk::kFormatVersion + 1, disk::kFormatVersion - 1}) {
		disk::Superblock super;
		FILE *file = fopen(options_.path.c_str(), "r+");
		ASSERT_EQ(fread(&super, sizeof(super), 1, file), 1u);
		uint32_t right = std::exchange(super.version, version);
		disk::seal(super);
		rewind(file);
		ASSERT_EQ(fwrite(&super, sizeof(super), 1, file), 1u);
		fflush(file);
		Error said = open_error();
		EXPECT_EQ(said.code, EPROTONOSUPPORT);
		EXPECT_NE(said.what.find(fmt::format("format {}", version)), std::string::npos)
			<< said.what;
		super.version = right;
		disk::seal(super);
		rewind(file);
		ASSERT_EQ(fwrite(&super, sizeof(super), 1, file), 1u);
		fclose(file);
	}
	open();
	EXPECT_EQ(driver_->check(1, 0, kBytes, 1), 0) << "a refused store is left as it was";
}

TEST_F(StoreTest, ForeignFileIsLeftAlone)
{
	FILE *file = fopen(options_.path.c_str(), "w");
	for (int i = 0; i < 20000; i++)
		fputc('x', file);
	fclose(file);
	ASSERT_EQ(chmod(options_.path.c_str(), 0644), 0);
	EXPECT_EQ(open_error().code, EINVAL);
	EXPECT_EQ(std::filesystem::file_size(options_.path), 20000u);
	EXPECT_EQ(mode_of(options_.path), 0644u);
}

TEST_F(StoreTest, TooSmallIsRefused)
{
	options_.size_bytes = 1 << 20;
	EXPECT_EQ(open_error().code, EINVAL);
}

TEST_F(StoreTest, StoreFileIsPrivateWhateverTheUmask)
{
	mode_t old = umask(0);
	open();
	umask(old);
	EXPECT_EQ(mode_of(options_.path), 0600u);
}

TEST_F(StoreTest, RightsOfOthersToAFileAreTakenAway)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 1), 0);
	ASSERT_EQ(chmod(options_.path.c_str(), 0664), 0);
	open();
	EXPECT_EQ(mode_of(options_.path), 0600u);
	EXPECT_EQ(driver_->check(1, 3, kBytes, 1), 0);
}
