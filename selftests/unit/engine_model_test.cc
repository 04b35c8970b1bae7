/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The engine refuses model files that are not what they say. */
#include "engine/model.h"

#include <array>
#include <cstdint>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace cxlkv::engine {
namespace {

using Header = std::array<uint32_t, 8>;

/* dim 32, 1 layer, 2 query heads on 1 KV head of 16, ffn 8. */
constexpr Header good_header{0x4B56544D, 32, 1, 2, 1, 16, 8, 256};
constexpr size_t good_floats =
	256 * 32 + 32 + (32 * 32 + 2 * 32 * 16 + 32 * 32) + 32 + 3 * 32 * 8 + 32;

class ModelFile : public testing::Test {
protected:
	~ModelFile() override { unlink(path_.c_str()); }

	Result<Model> load(const Header &header, size_t nr_floats,
			   size_t header_bytes = sizeof(Header))
	{
		std::ofstream out(path_, std::ios::binary | std::ios::trunc);
		out.write(reinterpret_cast<const char *>(header.data()),
			  static_cast<std::streamsize>(header_bytes));
		std::vector<float> weights(nr_floats, 0.5f);
		out.write(reinterpret_cast<const char *>(weights.data()),
			  static_cast<std::streamsize>(nr_floats * sizeof(float)));
		out.close();
		return Model::load(path_);
	}

	void expect_refused(size_t field, uint32_t value, const char *word)
	{
		Header header = good_header;
		header[field] = value;
		Result<Model> r = load(header, good_floats);
		ASSERT_FALSE(r) << "field " << field << " = " << value;
		EXPECT_EQ(r.error().code, EINVAL);
		EXPECT_NE(r.error().what.find(word), std::string::npos) << r.error().what;
	}

	std::string path_ = testing::TempDir() + "engine_model_test." + std::to_string(getpid());
};

TEST_F(ModelFile, LoadsWhatMatchesItsHeader)
{
	Result<Model> r = load(good_header, good_floats);

	ASSERT_TRUE(r) << r.error().what;
	EXPECT_EQ(r->layers.size(), 1u);
	EXPECT_EQ(r->shape.group(), 2u);
}

TEST_F(ModelFile, RefusesMissingEmptyAndShortFiles)
{
	Result<Model> missing = Model::load(path_);
	ASSERT_FALSE(missing);
	EXPECT_EQ(missing.error().code, ENOENT);
	EXPECT_FALSE(load(good_header, 0, 0));
	EXPECT_FALSE(load(good_header, 0, 31));
	EXPECT_FALSE(load(good_header, 0));
	EXPECT_FALSE(load(good_header, good_floats - 1));
}

TEST_F(ModelFile, RefusesALongFile)
{
	EXPECT_FALSE(load(good_header, good_floats + 1));
}

TEST_F(ModelFile, RefusesBadHeadersByName)
{
	expect_refused(0, 0x4B56544E, "magic");
	expect_refused(1, 0, "dim");
	expect_refused(1, 0xffffffff, "dim");
	expect_refused(2, 0, "layers");
	expect_refused(2, 1u << 31, "layers");
	expect_refused(3, 0, "heads");
	expect_refused(4, 0, "kv_heads");
	expect_refused(5, 0, "head_dim");
	expect_refused(5, 17, "head_dim");
	expect_refused(6, 0, "ffn");
	expect_refused(7, 257, "vocab");
}

TEST_F(ModelFile, RefusesQueryHeadsThatDoNotDivide)
{
	expect_refused(4, 3, "divide");
	expect_refused(4, 4, "divide"); /* fewer query heads than KV heads */
}

} // namespace
} // namespace cxlkv::engine
