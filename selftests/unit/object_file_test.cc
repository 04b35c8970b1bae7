/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file by which objects are found after a restart: all of it, or an error. */
#include "sys/object_file.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace cxlkv {

namespace {

class ObjectFile : public testing::Test {
protected:
	ObjectFile()
	{
		saved_.chunk_bytes = 65536;
		saved_.nr_chunks = 100;
		SpaceSpec spec{"name", std::string(64, 'a'), {}, {{0, 10}, {7, 20}}};
		for (const char *field : SpaceSpec::identity_fields)
			spec.identity.emplace_back(field);
		saved_.spaces.push_back({spec, 1 << 20});
		saved_.objects.push_back({0, {1, 2, 3, 4}, 7, 20, 35, {{5, 0x1234}, {6, 0x5678}}});
		saved_.objects.push_back({0, {9, 0, 0, 0}, 0, 10, 0, {}});
	}
	~ObjectFile() override { std::filesystem::remove_all(folder_); }

	[[nodiscard]] std::string contents() const
	{
		std::ifstream in(path_, std::ios::binary);
		return {std::istreambuf_iterator<char>(in), {}};
	}
	void write(const std::string &bytes) const
	{
		std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
	}

	std::string folder_ = std::filesystem::temp_directory_path() /
			      ("cxl_kv_object_file." + std::to_string(getpid()));
	std::string path_ = (std::filesystem::create_directory(folder_), folder_ + "/objects");
	SavedObjects saved_;
};

TEST_F(ObjectFile, comes_back_as_it_was)
{
	EXPECT_EQ(load_objects(path_).error().code, ENOENT);
	ASSERT_TRUE(save_objects(path_, saved_));
	ASSERT_TRUE(save_objects(path_, saved_)) << "in place of the last one";
	auto loaded = load_objects(path_);
	ASSERT_TRUE(loaded);
	EXPECT_EQ(loaded->nr_chunks, 100u);
	ASSERT_EQ(loaded->spaces.size(), 1u);
	EXPECT_TRUE(loaded->spaces[0].spec.same_place(saved_.spaces[0].spec));
	EXPECT_EQ(loaded->spaces[0].spec.difference(saved_.spaces[0].spec), "");
	EXPECT_EQ(loaded->spaces[0].quota_bytes, 1u << 20);
	ASSERT_EQ(loaded->objects.size(), 2u);
	EXPECT_EQ(loaded->objects[0].key, saved_.objects[0].key);
	EXPECT_EQ(loaded->objects[0].chunks[1].checksum, 0x5678u);
	EXPECT_EQ(loaded->objects[1].priority, 0);
	auto mode = std::filesystem::status(path_).permissions();
	EXPECT_EQ(mode & std::filesystem::perms(077), std::filesystem::perms::none)
		<< "it holds salts";
}

TEST_F(ObjectFile, a_flipped_bit_or_a_cut_is_an_error)
{
	ASSERT_TRUE(save_objects(path_, saved_));
	const std::string good = contents();

	for (size_t at = 0; at < good.size(); at++) {
		std::string bad = good;
		bad[at] = static_cast<char>(bad[at] ^ 4);
		write(bad);
		ASSERT_FALSE(load_objects(path_)) << "byte " << at;
		write(good.substr(0, at));
		ASSERT_FALSE(load_objects(path_)) << "cut at " << at;
	}
	write(good + "x");
	EXPECT_FALSE(load_objects(path_));
	write(good);
	EXPECT_TRUE(load_objects(path_));
}

} // namespace

} // namespace cxlkv
