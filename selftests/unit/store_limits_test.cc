/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Size caps, the write rate, several files, and wiping. */
#include "lib/store_fixture.h"

#include "sys/spill_store_disk.h"

#include <atomic>
#include <fcntl.h>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>

using namespace cxlkv;

namespace {

class StoreLimits : public test::StoreTest {
protected:
	void put_all(uint64_t arena, uint32_t nr_blocks, uint32_t generation)
	{
		for (uint32_t i = 0; i < nr_blocks; i += 4)
			ASSERT_EQ(driver_->put(arena, i, 4, kBytes, generation), 0);
	}
	/* Good blocks; wrong bytes fail the test. */
	uint32_t count_good(uint64_t arena, uint32_t nr_blocks, uint32_t generation)
	{
		uint32_t good = 0;
		for (uint32_t i = 0; i < nr_blocks; i++) {
			int result = driver_->check(arena, i, kBytes, generation);
			EXPECT_NE(result, EILSEQ);
			good += result == 0;
		}
		return good;
	}
	/* Opens and uses the store in a child that dies in front of that write. */
	bool killed_before_write(uint32_t number, const std::function<void(SpillStore &)> &use = {})
	{
		pid_t child = fork();
		if (child == 0) {
			auto opened =
				SpillStore::open(options_, [&](std::unique_ptr<BlockIo> below) {
					auto io =
						std::make_unique<test::FaultyIo>(std::move(below));
					io->fault = [&number](const IoRequest &r) {
						if (r.is_write() && --number == 0)
							raise(SIGKILL);
						return std::nullopt;
					};
					return io;
				});
			if (opened && use)
				use(**opened);
			_exit(opened ? 0 : 1);
		}
		int status = 0;
		waitpid(child, &status, 0);
		EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
		return WIFSIGNALED(status);
	}
	/* Whether a page of these blocks lies anywhere in the file. */
	bool any_in_file(uint64_t arena, uint32_t first, uint32_t nr, uint32_t generation)
	{
		constexpr size_t kWords = 4096 / sizeof(uint64_t);
		std::vector<uint64_t> file(std::filesystem::file_size(options_.path) / 8);
		std::vector<std::byte> block(kBytes);
		std::set<uint64_t> wanted; /* random words: the first of a page tells */
		for (uint32_t i = first; i < first + nr; i++) {
			test::fill_block(block.data(), kBytes, arena, i, generation);
			auto *words = reinterpret_cast<const uint64_t *>(block.data());
			for (size_t at = 0; at < kBytes / sizeof(uint64_t); at += kWords)
				wanted.insert(words[at]);
		}
		int fd = ::open(options_.path.c_str(), O_RDONLY);
		EXPECT_EQ(pread(fd, file.data(), file.size() * 8, 0),
			  static_cast<ssize_t>(file.size() * 8));
		close(fd);
		for (size_t at = 0; at < file.size(); at += kWords) {
			if (wanted.contains(file[at]))
				return true;
		}
		return false;
	}
	void wipe_all()
	{
		for (int tries = 0; tries < 500 && store_->stats().unwiped_bytes; tries++)
			driver_->settle_once();
		EXPECT_EQ(store_->stats().unwiped_bytes, 0u);
	}
};

} // namespace

TEST_F(StoreLimits, SmallerCapKeepsAllThatFits)
{
	open();
	put_all(1, 400, 1);
	put_all(2, 200, 1);
	for (uint32_t i = 0; i < 300; i++)
		store_->drop({1, i});
	ASSERT_TRUE(store_->sync());
	/* 300 blocks stay, the last written ones, behind the new end most of them. */
	options_.size_bytes = 9u << 20;
	open();
	EXPECT_LE(std::filesystem::file_size(options_.path), 9u << 20);
	EXPECT_EQ(count_good(1, 400, 1), 100u);
	EXPECT_EQ(count_good(2, 200, 1), 200u);
	EXPECT_EQ(store_->stats().nr_evicted, 0u);
	open();
	EXPECT_EQ(count_good(2, 200, 1), 200u) << "where the log says they are now";
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 2), 0);
	EXPECT_LE(std::filesystem::file_size(options_.path), 9u << 20);
}

TEST_F(StoreLimits, SmallerCapLeavesOutWhatWasWrittenFirst)
{
	open();
	put_all(1, 200, 1);
	put_all(2, 400, 1);
	options_.size_bytes = 8u << 20;
	open();
	EXPECT_LE(std::filesystem::file_size(options_.path), 8u << 20);
	uint32_t first = count_good(1, 200, 1), second = count_good(2, 400, 1);
	EXPECT_EQ(first, 0u);
	EXPECT_GT(second, 250u) << "most of the new size is used";
	EXPECT_EQ(store_->stats().nr_evicted, 600 - second);
	open();
	EXPECT_EQ(count_good(2, 400, 1), second);
	EXPECT_EQ(count_good(1, 200, 1), 0u) << "what was left out does not come back";
	for (uint32_t i = 0; i < 100; i++)
		store_->drop({2, i});
	ASSERT_TRUE(store_->sync());
	ASSERT_EQ(driver_->put(1, 0, 4, kBytes, 2), 0);
	EXPECT_LE(std::filesystem::file_size(options_.path), 8u << 20);
}

TEST_F(StoreLimits, StartCutOffWhileMakingSmallerLosesNothingMore)
{
	open();
	put_all(1, 600, 1);
	for (uint32_t i = 0; i < 300; i++)
		store_->drop({1, i});
	ASSERT_TRUE(store_->sync());
	store_.reset();
	options_.size_bytes = 10u << 20;
	/* Killed at its 1st write, 2nd write, ... until it gets through. */
	bool killed = true;
	for (uint32_t nr = 1; killed; nr++) {
		killed = killed_before_write(nr);
		ASSERT_LT(nr, 1000u);
	}
	open();
	EXPECT_EQ(count_good(1, 600, 1), 300u);
	EXPECT_LE(std::filesystem::file_size(options_.path), 10u << 20);
}

TEST_F(StoreLimits, LargerCapIsUsed)
{
	options_.size_bytes = 8u << 20;
	open();
	put_all(1, 200, 1);
	options_.size_bytes = 32u << 20;
	open();
	EXPECT_EQ(count_good(1, 200, 1), 200u);
	put_all(2, 800, 1);
	open();
	EXPECT_EQ(count_good(1, 200, 1), 200u);
	EXPECT_EQ(count_good(2, 800, 1), 800u);
}

TEST_F(StoreLimits, WriteRateIsCapped)
{
	options_.write_bytes_per_s = 64 * kBytes;
	open();
	uint32_t nr = 0;
	auto start = std::chrono::steady_clock::now();
	int result = 0;
	while ((result = driver_->put(1, nr, 4, kBytes, 1)) == 0 && nr < 4096)
		nr += 4;
	double seconds =
		std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
	EXPECT_EQ(result, EAGAIN);
	EXPECT_LE(nr, 64 * (1 + seconds) + 4);
	EXPECT_EQ(store_->stats().nr_throttled, 1u);
	EXPECT_EQ(driver_->check(1, 0, kBytes, 1), 0) << "reads are not";
}

TEST_F(StoreLimits, WhatIsTooSmallSaysWhatIsEnough)
{
	for (uint32_t nr_files : {1, 3}) {
		options_.path += ".of" + std::to_string(nr_files);
		options_.more_paths.clear();
		for (uint32_t i = 1; i < nr_files; i++)
			options_.more_paths.push_back(options_.path + "." + std::to_string(i));
		options_.size_bytes = 1u << 20;
		const std::string said = open_error().what, least = "at least ";
		EXPECT_NE(said.find(" 1048576 bytes"), std::string::npos) << said;
		const size_t at = said.find(least);
		ASSERT_NE(at, std::string::npos) << said;
		options_.size_bytes = std::stoull(said.substr(at + least.size()));
		open();
		/* What is there is judged in other words. */
		options_.size_bytes -= nr_files * 4096;
		EXPECT_NE(open_error().what.find(said.substr(at)), std::string::npos)
			<< open_error().what;
	}
}

TEST_F(StoreLimits, SeveralFilesShareTheBlocks)
{
	constexpr uint32_t kSmall = 4096;
	options_.more_paths = {options_.path + ".1", options_.path + ".2"};
	options_.size_bytes = 96u << 20;
	open();
	for (uint32_t i = 0; i < 3000; i += 20)
		ASSERT_EQ(driver_->put(1, i, 20, kSmall, 1), 0);
	/* Across the border between two files. */
	ASSERT_EQ(driver_->put(1, 1022, 4, kSmall, 2), 0);
	std::vector<std::byte> got, want(kSmall);
	EXPECT_EQ(driver_->read(1, 1022, 4, kSmall, got), std::vector<int>(4));
	test::fill_block(want.data(), kSmall, 1, 1025, 2);
	EXPECT_EQ(memcmp(got.data() + 3 * kSmall, want.data(), kSmall), 0);
	open();
	for (uint32_t i = 0; i < 3000; i++)
		ASSERT_EQ(driver_->check(1, i, kSmall, i >= 1022 && i < 1026 ? 2 : 1), 0) << i;

	std::swap(options_.more_paths[0], options_.more_paths[1]);
	EXPECT_EQ(open_error().code, EINVAL) << "listed in another order";
	options_.more_paths.pop_back();
	EXPECT_EQ(open_error().code, EINVAL) << "one is not listed";
}

TEST_F(StoreLimits, LostFileCostsOnlyItsBlocks)
{
	const std::string first = options_.path, second = options_.path + ".1";
	options_.more_paths = {second};
	options_.size_bytes = 32u << 20;
	for (const std::string &lost : {second, first}) {
		for (bool replaced : {false, true}) {
			std::filesystem::remove(first);
			std::filesystem::remove(second);
			open();
			for (uint64_t arena = 1; arena <= 8; arena++)
				put_all(arena, 16, 1);
			store_.reset();
			std::filesystem::remove(lost);
			/* Something that nobody can open, or a new file in its place. */
			if (!replaced)
				std::filesystem::create_symlink(lost, lost);
			open();
			uint32_t good = 0;
			for (uint64_t arena = 1; arena <= 8; arena++)
				good += count_good(arena, 16, 1);
			EXPECT_GT(good, 0u) << lost << replaced;
			EXPECT_LT(good, 8 * 16u) << lost << replaced;
			EXPECT_EQ(good % 16, 0u) << "each arena here lies in one file";
			/* New blocks are refused by the lost file, or taken by the new one. */
			uint32_t nr_taken = 0;
			for (uint64_t arena = 11; arena <= 18; arena++)
				nr_taken += driver_->put(arena, 0, 4, kBytes, 1) == 0;
			EXPECT_EQ(nr_taken == 8, replaced);
			EXPECT_GT(nr_taken, 0u);
		}
	}
}

TEST_F(StoreLimits, FileThatFailsAtWorkCostsOnlyItsBlocks)
{
	options_.more_paths = {options_.path + ".1"};
	options_.size_bytes = 32u << 20;
	open();
	for (uint64_t arena = 1; arena <= 8; arena++)
		put_all(arena, 16, 1);
	io_->fault = [](const IoRequest &r) {
		return r.file == 1 ? std::optional(-ENODEV) : std::nullopt;
	};
	uint32_t good = 0, failed = 0;
	for (uint64_t arena = 1; arena <= 8; arena++) {
		int read = driver_->check(arena, 0, kBytes, 1);
		int written = driver_->put(arena, 16, 4, kBytes, 1);
		EXPECT_TRUE(read == 0 || read == EIO) << read;
		EXPECT_EQ(written, read) << "both belong to the same file";
		(read ? failed : good)++;
	}
	EXPECT_GT(good, 0u);
	EXPECT_GT(failed, 0u);
}

TEST_F(StoreLimits, NoFileIsMadeInThePlaceOfADrive)
{
	options_.path = "/dev/cxl-kv-no-such-drive";
	EXPECT_EQ(open_error().code, ENOENT);
	EXPECT_FALSE(std::filesystem::exists(options_.path));
}

/* Until its commit the caller may need the bytes again, to undo a spill. */
TEST_F(StoreLimits, AWriteThatIsSplitLeavesTheCallersBytes)
{
	options_.more_paths = {directory_ + "/second"};
	open();
	constexpr uint32_t nr = 6;
	for (uint64_t arena = 1; arena <= 32; arena++) { /* some have their next group elsewhere */
		uint32_t first = 1024 - nr / 2;
		std::vector<int> results =
			arena % 2 ? driver_->write(arena, first, nr, kBytes, 1)
				  : driver_->write_filling(arena, first, nr, kBytes, 1);
		ASSERT_EQ(results, std::vector<int>(nr, 0));
		std::vector<std::byte> want(kBytes);
		Bounce buffer = store_->take_buffer(); /* the one that was given back last */
		for (uint32_t i = 0; i < nr; i++) {
			test::fill_block(want.data(), kBytes, arena, first + i, 1);
			EXPECT_EQ(memcmp(buffer.data + size_t{i} * kBytes, want.data(), kBytes), 0)
				<< "arena " << arena << " block " << i;
			store_->commit({arena, first + i});
			EXPECT_EQ(driver_->check(arena, first + i, kBytes, 1), 0);
		}
		store_->give_buffer(buffer);
	}
}

TEST_F(StoreLimits, BlocksThatCannotBeCopiedAreNotWritten)
{
	constexpr uint32_t nr = 6, bad = nr / 2, border = 1024 - bad;
	options_.more_paths = {directory_ + "/second"};
	open();
	ASSERT_EQ(driver_->put(1, 0, nr, kBytes, 1), 0);
	ASSERT_EQ(driver_->put(1, border, nr, kBytes, 1), 0);
	EXPECT_EQ(driver_->write_filling(1, 0, nr, kBytes, 2, bad), std::vector<int>{EIO});
	/* Two extents, of which the first one is written. */
	EXPECT_EQ(driver_->write_filling(1, border, nr, kBytes, 2, bad),
		  (std::vector<int>{0, 0, 0, EIO, EIO, EIO}));
	for (uint32_t i = 0; i < bad; i++)
		store_->commit({1, border + i});
	for (bool restarted : {false, true}) {
		for (uint32_t i = 0; i < nr; i++) {
			EXPECT_EQ(driver_->check(1, i, kBytes, 1), 0) << restarted << i;
			EXPECT_EQ(driver_->check(1, border + i, kBytes, i < bad ? 2 : 1), 0)
				<< restarted << i;
		}
		open();
	}
}

TEST_F(StoreLimits, SecureDropLeavesNoByteOfTheArena)
{
	options_.wipe = StoreOptions::Wipe::Secure;
	open();
	put_all(1, 64, 1);
	put_all(2, 64, 1);
	put_all(1, 32, 2); /* and old generations */
	store_->drop_arena(1);
	wipe_all();
	EXPECT_FALSE(any_in_file(1, 0, 64, 1));
	EXPECT_FALSE(any_in_file(1, 0, 64, 2));
	EXPECT_EQ(count_good(2, 64, 1), 64u);
	EXPECT_TRUE(any_in_file(2, 0, 1, 1)) << "the search finds what is there";
}

TEST_F(StoreLimits, SecureDropOfBlocksLeavesNoByteOfThem)
{
	options_.wipe = StoreOptions::Wipe::Secure;
	open();
	put_all(1, 64, 1);
	put_all(1, 40, 2); /* over old generations */
	for (uint32_t block = 0; block < 32; block++)
		store_->drop({1, block});
	ASSERT_TRUE(store_->sync());
	wipe_all();
	EXPECT_FALSE(any_in_file(1, 0, 32, 1));
	EXPECT_FALSE(any_in_file(1, 0, 32, 2));
	EXPECT_EQ(driver_->check(1, 32, kBytes, 2), 0) << "what was not dropped stays";
	EXPECT_EQ(driver_->check(1, 63, kBytes, 1), 0);
	EXPECT_TRUE(any_in_file(1, 63, 1, 1)) << "the search finds what is there";
}

/* Killed in front of each write that it takes: what is wiped was dropped, what was dropped is
 * wiped.
 */
TEST_F(StoreLimits, SecureDropIsFinishedAfterAKillAtAnyWrite)
{
	constexpr uint32_t kDropped = 24, kAll = 64, kOther = 16;
	options_.wipe = StoreOptions::Wipe::Secure;
	open();
	put_all(1, kAll, 1);
	put_all(1, 40, 2);
	put_all(2, kOther, 1);
	store_.reset();
	std::string before = options_.path + ".before";
	std::filesystem::copy_file(options_.path, before);
	Mapping shared(
		mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
		4096);
	auto *durable = reinterpret_cast<std::atomic<bool> *>(shared.data());
	uint32_t nr_undone = 0, nr_finished_later = 0;
	bool killed = true;

	for (uint32_t number = 1; killed; number++) {
		std::filesystem::copy_file(before, options_.path,
					   std::filesystem::copy_options::overwrite_existing);
		*durable = false;
		killed = killed_before_write(number, [&](SpillStore &store) {
			for (uint32_t block = 0; block < kDropped; block++)
				store.drop({1, block});
			store.drop_arena(2); /* asks for a checkpoint while all is under way */
			while (store.nr_in_flight() || store.stats().unwiped_bytes) {
				test::StoreDriver(store).settle_once();
				*durable = *durable || !store.nr_in_flight();
			}
		});
		auto left = [&] {
			return any_in_file(1, 0, kDropped, 1) || any_in_file(1, 0, kDropped, 2) ||
			       any_in_file(2, 0, kOther, 1);
		};
		bool cut_off = left();
		EXPECT_TRUE(killed || !cut_off);
		open();
		wipe_all();
		bool there = store_->contains({1, 0});
		EXPECT_FALSE(there && *durable) << "write " << number;
		EXPECT_EQ(count_good(1, kDropped, 2), there ? kDropped : 0) << "write " << number;
		EXPECT_EQ(count_good(2, kOther, 1), there ? kOther : 0) << "write " << number;
		EXPECT_TRUE(there || !left()) << "write " << number;
		for (uint32_t i = kDropped; i < kAll; i++)
			EXPECT_EQ(driver_->check(1, i, kBytes, i < 40 ? 2 : 1), 0)
				<< "block " << i << " write " << number;
		nr_undone += there;
		nr_finished_later += cut_off && !there;
		driver_.reset();
		store_.reset();
	}
	EXPECT_GT(nr_undone, 0u) << "no kill came before the tombstones";
	EXPECT_GT(nr_finished_later, 5u) << "no kill came between the tombstones and the wiping";
}

TEST_F(StoreLimits, DiscardGivesTheRoomBack)
{
	options_.wipe = StoreOptions::Wipe::Discard;
	open();
	put_all(1, 400, 1);
	struct stat before, after;
	ASSERT_EQ(stat(options_.path.c_str(), &before), 0);
	store_->drop_arena(1);
	ASSERT_TRUE(store_->sync());
	for (int tries = 0; tries < 500 && store_->stats().unwiped_bytes; tries++)
		driver_->settle_once();
	ASSERT_EQ(stat(options_.path.c_str(), &after), 0);
	EXPECT_LT(after.st_blocks, before.st_blocks);
	put_all(1, 100, 2);
	EXPECT_EQ(count_good(1, 100, 2), 100u);
}
