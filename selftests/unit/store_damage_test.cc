/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Damage to what lies on the device: a miss or a refusal, never wrong bytes, never a crash. */
#include "lib/store_fixture.h"

#include "sys/spill_store_super.h"

#include <fcntl.h>

using namespace cxlkv;
using cxlkv::test::StoreTest;

namespace {

class StoreDamage : public StoreTest {
protected:
	static constexpr uint32_t kNrBlocks = 96;

	/* Three generations of every block, so that stale ones lie about; a few dropped. */
	void fill()
	{
		for (uint32_t generation = 1; generation <= 3; generation++) {
			for (uint32_t i = 0; i < kNrBlocks; i += 4)
				ASSERT_EQ(driver_->put(1, i, 4, kBytes, generation), 0);
		}
		for (uint32_t i = 0; i < 8; i++)
			store_->drop({1, i * 7});
		while (store_->nr_in_flight())
			driver_->settle_once();
	}
	/* A store as a killed daemon leaves it: checkpoint behind the log. */
	void fill_and_kill()
	{
		ASSERT_TRUE(killed_after([this] {
			open();
			fill();
		}));
	}
	static bool is_dropped(uint32_t block) { return block % 7 == 0 && block < 56; }
	/* Opens and looks at every block: right, or an error. Returns the number of good ones. */
	uint32_t survivors()
	{
		uint32_t good = 0;
		open();
		for (uint32_t i = 0; i < kNrBlocks; i++) {
			int result = driver_->check(1, i, kBytes, 3);
			EXPECT_NE(result, EILSEQ)
				<< "block " << i << " has other bytes than were written last";
			EXPECT_FALSE(result == 0 && is_dropped(i))
				<< "block " << i << " was dropped";
			good += result == 0;
		}
		store_.reset();
		return good;
	}
	void patch(uint64_t offset, const void *bytes, size_t nr)
	{
		int fd = ::open(options_.path.c_str(), O_RDWR);
		ASSERT_EQ(pwrite(fd, bytes, nr, static_cast<off_t>(offset)),
			  static_cast<ssize_t>(nr));
		close(fd);
	}
	std::vector<std::byte> image()
	{
		std::vector<std::byte> bytes(std::filesystem::file_size(options_.path));
		int fd = ::open(options_.path.c_str(), O_RDONLY);
		EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), 0),
			  static_cast<ssize_t>(bytes.size()));
		close(fd);
		return bytes;
	}
	disk::Superblock super()
	{
		disk::Superblock out;
		auto bytes = image();
		memcpy(&out, bytes.data(), sizeof(out));
		return out;
	}
	/* Offsets of the extent headers in the image, by seq. */
	std::map<uint64_t, uint64_t> extents()
	{
		std::map<uint64_t, uint64_t> out;
		auto bytes = image();
		disk::Superblock sb = super();
		for (uint64_t at = sb.log_offset(); at + disk::kPage <= bytes.size();
		     at += disk::kPage) {
			disk::ExtentHeader header;
			memcpy(&header, bytes.data() + at, sizeof(header));
			if (intact(header, sb.store_id, sb.segment_bytes) && !header.trailer)
				out[header.seq] = at;
		}
		return out;
	}
};

} // namespace

TEST_F(StoreDamage, NothingDamagedNothingLost)
{
	fill_and_kill();
	EXPECT_EQ(survivors(), kNrBlocks - 8);
}

TEST_F(StoreDamage, FlippedBytesAnywhere)
{
	fill_and_kill();
	auto clean = image();
	std::mt19937_64 random(1);
	for (uint32_t round = 0; round < 150; round++) {
		patch(0, clean.data(), clean.size());
		/* Often in the metadata at the front, else anywhere that was written. */
		uint64_t end = round % 3 ? 14u << 20 : super().log_offset() + (256 << 10);
		for (uint32_t n = 0; n < 1 + round % 4; n++) {
			uint64_t at = random() % end;
			uint8_t byte = static_cast<uint8_t>(clean[at]) ^
				       static_cast<uint8_t>(1 + random() % 255);
			patch(at, &byte, 1);
		}
		ASSERT_NO_THROW(survivors()) << "round " << round;
		ASSERT_FALSE(HasFailure()) << "round " << round;
	}
}

TEST_F(StoreDamage, EightSegmentsFlippedEverywhere)
{
	/* The smallest store there is, so that every part of it can be hit. */
	options_.size_bytes = 8 * 2 * ((128u << 10) + 2 * disk::kPage) + 68 * disk::kPage;
	ASSERT_TRUE(killed_after([this] {
		open();
		for (uint32_t generation = 1; generation <= 3; generation++) {
			for (uint32_t i = 0; i < 16; i += 4)
				if (driver_->put(1, i, 4, kBytes, generation))
					_exit(1);
		}
		store_->drop({1, 3});
		while (store_->nr_in_flight())
			driver_->settle_once();
	}));
	auto clean = image();
	auto sb = super();
	ASSERT_EQ(segments_in(clean.size(), sb), 8u);
	std::mt19937_64 random(2);
	uint64_t end = 0; /* of what was ever written */
	for (auto [seq, offset] : extents())
		end = std::max(end, offset + (128u << 10));
	/* Some byte of every page with metadata, and of every fourth one behind it. */
	for (uint64_t page = 0; page < end; page += page < sb.log_offset() ? 4096 : 4 * 4096) {
		patch(0, clean.data(), clean.size());
		uint64_t at = page + random() % 4096;
		for (uint32_t i = 0; i < 3; i++, at = page + random() % 256) {
			uint8_t byte = static_cast<uint8_t>(clean[at]) ^
				       static_cast<uint8_t>(1 + random() % 255);
			patch(at, &byte, 1);
		}
		try {
			open();
		} catch (const std::runtime_error &) {
			continue; /* a refused start */
		}
		for (uint32_t i = 0; i < 16; i++) {
			int result = driver_->check(1, i, kBytes, 3);
			ASSERT_NE(result, EILSEQ) << "page at " << page << ", block " << i;
			ASSERT_FALSE(result == 0 && i == 3) << "dropped, page at " << page;
		}
		store_.reset();
	}
}

TEST_F(StoreDamage, BitRotOfTheSameSizeIsAMiss)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 3), 0);
	store_.reset();
	auto bytes = image();
	uint64_t at = extents().begin()->second + disk::kPage + kBytes + 4321;
	uint8_t flipped = static_cast<uint8_t>(bytes[at]) ^ 0x10;
	patch(at, &flipped, 1);
	open();
	for (uint32_t i = 0; i < 4; i++)
		EXPECT_EQ(driver_->check(1, i, kBytes, 3), i == 1 ? EBADMSG : 0) << i;
	EXPECT_EQ(store_->stats().nr_checksum_failures, 1u);
}

/* What a device may have of a write when its power goes: any pages of it, in any order. */
TEST_F(StoreDamage, TornWriteIsTheOldRecordOrAMiss)
{
	ASSERT_TRUE(killed_after([this] {
		open();
		driver_->put(1, 0, 4, kBytes, 2);
		driver_->put(1, 0, 4, kBytes, 3);
	}));
	auto whole = image();
	uint64_t at = std::prev(extents().end())->second;
	uint32_t nr_pages = 4 * kBytes / disk::kPage + 2;
	std::vector<std::byte> zero(disk::kPage);
	std::mt19937_64 random(3);
	uint32_t nr_old = 0, nr_missed = 0;
	for (uint32_t round = 0; round < 60; round++) {
		patch(0, whole.data(), whole.size());
		/* A prefix, a suffix, or pages here and there did not get there. */
		uint32_t cut = 1 + random() % (nr_pages - 1);
		for (uint32_t page = 0; page < nr_pages; page++) {
			bool torn = round % 3 == 0   ? page >= cut
				    : round % 3 == 1 ? page < cut
						     : random() % 2;
			if (torn)
				patch(at + page * disk::kPage, zero.data(), zero.size());
		}
		open();
		for (uint32_t i = 0; i < 4; i++) {
			int result = driver_->check(1, i, kBytes, 3);
			if (result == EILSEQ)
				nr_old += (result = driver_->check(1, i, kBytes, 2)) == 0;
			ASSERT_NE(result, EILSEQ) << "round " << round;
			nr_missed += result != 0;
		}
		store_.reset();
	}
	EXPECT_GT(nr_old, 0u) << "both halves of the frame were lost: it was never written";
	EXPECT_GT(nr_missed, 0u) << "the frame is there, the block is not";
}

TEST_F(StoreDamage, DamagedHeaderIsReplacedByItsTrailer)
{
	fill_and_kill();
	for (auto [seq, offset] : extents()) {
		uint8_t zero[512] = {};
		patch(offset, zero, sizeof(zero));
	}
	EXPECT_EQ(survivors(), kNrBlocks - 8);
}

TEST_F(StoreDamage, ExtentLostWithBothHeadersBringsNoStaleBlockBack)
{
	fill_and_kill();
	/* The last one with blocks; what follows it in the log says that it was there. */
	auto bytes = image();
	disk::ExtentHeader header{};
	uint64_t at = 0;
	for (auto [seq, offset] : extents()) {
		disk::ExtentHeader one;
		memcpy(&one, bytes.data() + offset, sizeof(one));
		if (one.kind == disk::Kind::Blocks) {
			header = one;
			at = offset;
		}
	}
	std::vector<std::byte> zero(header.total_bytes());
	patch(at, zero.data(), zero.size());
	EXPECT_EQ(survivors(), 0u) << "nobody knows what the lost extent made obsolete";
}

TEST_F(StoreDamage, OneCheckpointCopyIsEnough)
{
	open();
	fill();
	store_.reset();
	disk::Superblock sb = super();
	std::vector<std::byte> zero(sb.checkpoint_bytes);
	patch(sb.checkpoint_offset(0, 0), zero.data(), zero.size());
	patch(sb.checkpoint_offset(1, 0), zero.data(), zero.size());
	EXPECT_EQ(survivors(), kNrBlocks - 8);
}

TEST_F(StoreDamage, OlderCheckpointDoesNotServe)
{
	open();
	fill();
	ASSERT_TRUE(store_->sync());
	auto before = image();
	for (uint32_t i = 0; i < kNrBlocks; i += 4)
		ASSERT_EQ(driver_->put(1, i, 4, kBytes, 4), 0);
	ASSERT_TRUE(store_->sync());
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 3), 0);
	store_.reset();
	/* The checkpoints as they were, over the log as it is. */
	patch(8192, before.data() + 8192, 4 * super().checkpoint_bytes);
	open();
	for (uint32_t i = 4; i < kNrBlocks; i++)
		EXPECT_NE(driver_->check(1, i, kBytes, 4), EILSEQ) << "stale block " << i;
}

TEST_F(StoreDamage, SecondSuperblockServes)
{
	open();
	fill();
	store_.reset();
	std::vector<std::byte> zero(4096);
	patch(0, zero.data(), zero.size());
	EXPECT_EQ(survivors(), kNrBlocks - 8);
	patch(4096, "x", 1);
	patch(0, "x", 1);
	EXPECT_EQ(open_error().code, EINVAL);
}

TEST_F(StoreDamage, SwappedBlocksFail)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 3), 0);
	store_.reset();
	auto bytes = image();
	uint64_t at = extents().begin()->second + disk::kPage;
	patch(at, bytes.data() + at + kBytes, kBytes);
	patch(at + kBytes, bytes.data() + at, kBytes);
	open();
	EXPECT_EQ(driver_->check(1, 0, kBytes, 3), EBADMSG);
	EXPECT_EQ(driver_->check(1, 1, kBytes, 3), EBADMSG);
	EXPECT_EQ(driver_->check(1, 2, kBytes, 3), 0);
	EXPECT_EQ(store_->stats().nr_checksum_failures, 2u);
}

TEST_F(StoreDamage, ExtentCopiedOverAnotherFails)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 3), 0);
	ASSERT_EQ(driver_->put(1, 4, 4, kBytes, 3), 0);
	store_.reset();
	auto bytes = image();
	auto all = extents();
	patch(all[2], bytes.data() + all[1], 4 * kBytes + 2 * disk::kPage);
	open();
	for (uint32_t i = 0; i < 8; i++)
		EXPECT_EQ(driver_->check(1, i, kBytes, 3), i < 4 ? 0 : EBADMSG) << i;
}

TEST_F(StoreDamage, StaleGenerationInTheNewPlaceFails)
{
	open();
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 2), 0);
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 3), 0);
	store_.reset();
	auto bytes = image();
	auto all = extents();
	patch(all[2] + disk::kPage, bytes.data() + all[1] + disk::kPage, 4 * kBytes);
	open();
	for (uint32_t i = 0; i < 4; i++)
		EXPECT_EQ(driver_->check(1, i, kBytes, 3), EBADMSG) << i;
}

TEST_F(StoreDamage, TruncatedFileMissesWhatIsGone)
{
	open();
	fill();
	store_.reset();
	auto all = extents();
	std::filesystem::resize_file(options_.path,
				     std::next(all.begin(), all.size() * 3 / 4)->second);
	uint32_t good = survivors();
	EXPECT_LT(good, kNrBlocks - 8);
	EXPECT_GT(good, 0u);
}

class StoreCleaning : public StoreDamage {
protected:
	/* Arena 1 stays, between blocks of arena 2 that are written over and over. Blocks of arena
	 * 1. */
	uint32_t fill()
	{
		auto nr =
			static_cast<uint32_t>(store_->stats().capacity_bytes / 3 / kBytes) / 4 * 4;
		for (uint32_t i = 0; i < nr; i += 4) {
			EXPECT_EQ(driver_->put(1, i, 4, kBytes, 3), 0);
			EXPECT_EQ(driver_->put(2, i % 80, 4, kBytes, 1), 0);
		}
		EXPECT_TRUE(store_->sync());
		return nr;
	}
	void clean(const std::function<bool()> &enough)
	{
		for (uint32_t i = 0; i < 4000 && !enough(); i++)
			if (driver_->put(2, i * 4 % 80, 4, kBytes, 1))
				driver_->settle_once(); /* full until the cleaner is done */
	}
};

TEST_F(StoreCleaning, RotFoundWhileCleaningIsAMiss)
{
	open();
	const uint32_t nr = fill();
	for (auto [seq, offset] : extents())
		patch(offset + disk::kPage + 5, "rot", 3);
	clean([&] { return store_->stats().nr_checksum_failures >= 5; });
	EXPECT_GE(store_->stats().nr_checksum_failures, 5u) << "the cleaner never came by";
	for (uint32_t i = 0; i < nr; i++) {
		int result = driver_->check(1, i, kBytes, 3);
		if (i % 4)
			EXPECT_EQ(result, 0) << "block " << i;
		else
			EXPECT_TRUE(result == ENOENT || result == EBADMSG) << result;
	}
}

/* Of a block that is being spilled again: its new record is complete, and not committed yet. */
TEST_F(StoreCleaning, OldRecordThatCannotBeReadLeavesTheNewerOneAlone)
{
	open();
	const uint32_t nr = fill();
	for (uint32_t i = 0; i < nr; i += 4)
		while (driver_->write(1, i, 1, kBytes, 4)[0])
			driver_->settle_once(); /* full until the cleaner is done */
	uint64_t nr_failed = 0;
	io_->fault = [&](const IoRequest &request) {
		bool fails = request.op == IoRequest::Op::Read && nr_failed < 8;
		nr_failed += fails;
		return fails ? std::optional(-EIO) : std::nullopt;
	};
	clean([&] { return nr_failed >= 8; });
	io_->fault = nullptr;
	EXPECT_GT(nr_failed, 0u) << "the cleaner never came by";
	for (uint32_t i = 0; i < nr; i += 4) {
		store_->commit({1, i});
		EXPECT_EQ(driver_->check(1, i, kBytes, 4), 0) << "block " << i;
	}
}
