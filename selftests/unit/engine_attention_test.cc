/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An attention trace says what the decoder computed, in the layout that readers expect. */
#include "engine/attention.h"
#include "engine/decoder.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <unistd.h>

namespace cxlkv::engine {
namespace {

class AttentionTrace : public testing::Test {
protected:
	~AttentionTrace() override { unlink(path_.c_str()); }
	void SetUp() override
	{
		Result<Model> model = Model::load("selftests/engine/model/tiny-llama.bin");
		ASSERT_TRUE(model) << model.error().what << " (run from the repository's top)";
		model_ = std::move(*model);
		Result<Text> text = read_text("selftests/engine/model/heldout.txt");
		ASSERT_TRUE(text) << text.error().what;
		text_ = std::move(*text);
	}

	std::string path_ =
		testing::TempDir() + "engine_attention_test." + std::to_string(getpid());
	Model model_;
	Text text_;
};

TEST_F(AttentionTrace, HoldsTheMassOfEveryStepHeadAndBlock)
{
	const uint32_t tokens = 96, per_block = 16, blocks = tokens / per_block;
	auto written = record_attention({500, tokens, per_block}, model_, text_, path_);
	ASSERT_TRUE(written) << written.error().what;

	std::ifstream in(path_, std::ios::binary);
	const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
	int32_t header[6];
	ASSERT_EQ(file.size(), sizeof(header) + size_t{12} * tokens * blocks);
	memcpy(header, file.data(), sizeof(header));
	const int32_t want[6] = {0x4B564154, 6, 2, tokens, blocks, per_block};
	EXPECT_EQ(memcmp(header, want, sizeof(want)), 0);

	/* The last step again, computed in one go: each mass is right to half a step of q. */
	auto shape = KvShape::create(model_.shape, per_block, tokens, KvType::F16);
	ASSERT_TRUE(shape);
	std::vector<std::byte> kv(shape->slot_bytes());
	Decoder decoder(model_, *shape);
	Masses masses;
	decoder.forward(std::span(text_).subspan(500, tokens), 0, kv.data(), &masses);
	for (uint32_t h = 0; h < 12; h++)
		for (uint32_t b = 0; b < blocks; b++) {
			const size_t at =
				sizeof(header) + (size_t{h} * tokens + tokens - 1) * blocks + b;
			const float root = static_cast<float>(static_cast<uint8_t>(file[at])) / 255;
			EXPECT_NEAR(root, std::sqrt(masses.head(h)[b]), 0.51 / 255)
				<< h << ", " << b;
		}
}

TEST_F(AttentionTrace, RefusesWhatIsOutsideTheTextOrNotWholeBlocks)
{
	EXPECT_FALSE(record_attention({text_.size() + 1, 16, 16}, model_, text_, path_));
	EXPECT_FALSE(record_attention({text_.size() - 15, 16, 16}, model_, text_, path_));
	EXPECT_FALSE(record_attention({0, 17, 16}, model_, text_, path_));
	EXPECT_FALSE(record_attention({0, 0, 16}, model_, text_, path_));
	EXPECT_FALSE(record_attention({0, 16, 16}, model_, text_, path_ + "/none"));
}

} // namespace
} // namespace cxlkv::engine
