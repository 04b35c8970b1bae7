/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What `cxl-kv store` shows of a store at rest, and that it changes nothing. */
#include "sys/spill_store_inspect.h"

#include "cli/commands.h"
#include "lib/store_fixture.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>

using namespace cxlkv;

namespace {

class StoreInspect : public test::StoreTest {
protected:
	void fill()
	{
		open();
		for (uint32_t i = 0; i < 40; i += 4)
			ASSERT_EQ(driver_->put(9, i, 4, kBytes, 1), 0);
		store_->drop({9, 39});
		ASSERT_TRUE(store_->sync());
		store_.reset();
	}
	void patch(uint64_t offset, const void *bytes, size_t nr)
	{
		int fd = ::open(options_.path.c_str(), O_RDWR);
		ASSERT_EQ(pwrite(fd, bytes, nr, static_cast<off_t>(offset)),
			  static_cast<ssize_t>(nr));
		close(fd);
	}
	static std::vector<BadBlock> bad_blocks(const StoreImage &image)
	{
		std::vector<BadBlock> bad;
		EXPECT_EQ(verify_blocks(image, [&](const BadBlock &one) { bad.push_back(one); }),
			  39u);
		return bad;
	}
};

} // namespace

TEST_F(StoreInspect, SoundStoreIsSound)
{
	fill();
	auto image = load_image(options_.path);
	ASSERT_TRUE(image) << image.error().what;
	EXPECT_EQ(image->log.index.size(), 39u);
	EXPECT_TRUE(image->damaged_copies.empty());
	EXPECT_TRUE(bad_blocks(*image).empty());
}

TEST_F(StoreInspect, DamagedBlockIsNamed)
{
	fill();
	auto before = load_image(options_.path);
	ASSERT_TRUE(before);
	Location where = before->log.index.find({9, 17});
	const ExtentEntry &extent = before->log.table.extent(where);
	uint64_t offset = before->super.segment_offset(where.segment) + extent.offset +
			  disk::kPage + (where.slot - extent.first_slot) * kBytes;
	patch(offset + 100, "rot", 3);
	auto bad = bad_blocks(*before);
	ASSERT_EQ(bad.size(), 1u);
	EXPECT_EQ(bad[0].key, (BlockKey{9, 17}));
	EXPECT_EQ(bad[0].offset, offset);
}

TEST_F(StoreInspect, DamagedCopiesAreNamed)
{
	fill();
	uint64_t at;
	{
		auto image = load_image(options_.path);
		ASSERT_TRUE(image);
		at = image->super.checkpoint_offset(image->log.position.checkpoint, 1);
	}
	patch(4096 + 9, "x", 1);
	patch(at + disk::kPage, "rot", 3);
	auto image = load_image(options_.path);
	ASSERT_TRUE(image) << image.error().what;
	EXPECT_EQ(image->damaged_copies.size(), 2u);
	EXPECT_EQ(image->log.index.size(), 39u);
}

TEST_F(StoreInspect, StoreInUseIsLeftAlone)
{
	open();
	auto image = load_image(options_.path);
	ASSERT_FALSE(image);
	EXPECT_EQ(image.error().code, EBUSY);
}

TEST_F(StoreInspect, MissingFileIsNotMade)
{
	EXPECT_EQ(load_image(options_.path).error().code, ENOENT);
	EXPECT_FALSE(std::filesystem::exists(options_.path));
}

TEST_F(StoreInspect, JsonOfAPathThatIsNoUtf8)
{
	fill();
	std::string stat = "stat", json = "-j", path = options_.path + "\xff";
	std::filesystem::rename(options_.path, path);
	char *words[] = {stat.data(), json.data(), stat.data(), path.data(), nullptr};
	testing::internal::CaptureStdout();
	EXPECT_NO_THROW(EXPECT_EQ(cmd_store(4, words), kExitOk));
	fflush(stdout);
	nlohmann::json said =
		nlohmann::json::parse(testing::internal::GetCapturedStdout(), nullptr, false);
	ASSERT_TRUE(said.is_object());
	EXPECT_EQ(said["path"], options_.path + "\ufffd");
	EXPECT_EQ(said["blocks"], 39);
	std::filesystem::remove(path);
}

TEST_F(StoreInspect, FifoIsRefusedNotWaitedFor)
{
	ASSERT_EQ(mkfifo(options_.path.c_str(), 0600), 0);
	EXPECT_EQ(load_image(options_.path).error().code, EINVAL);
}
