/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The decoder computes what the model's own reference says, however its work is cut up. */
#include "engine/decoder.h"
#include "engine/reference.h"
#include "engine/text.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

namespace cxlkv::engine {
namespace {

const std::string model_dir = "selftests/engine/model/";

class DecoderOnRealModel : public testing::Test {
protected:
	void SetUp() override
	{
		Result<Model> model = Model::load(model_dir + "tiny-llama.bin");
		ASSERT_TRUE(model) << model.error().what << " (run from the repository's top)";
		model_ = std::move(*model);
		Result<Text> text = read_text(model_dir + "heldout.txt");
		ASSERT_TRUE(text) << text.error().what;
		text_ = std::move(*text);
		Result<KvShape> shape = KvShape::create(model_.shape, 16, 512, KvType::F16);
		ASSERT_TRUE(shape);
		shape_ = *shape;
	}

	/* KV bytes after n tokens that were computed piece by piece. */
	std::vector<std::byte> kv_of(uint32_t n, uint32_t piece)
	{
		Decoder decoder(model_, shape_);
		std::vector<std::byte> kv(shape_.slot_bytes());
		for (uint32_t at = 0; at < n; at += piece)
			decoder.forward(std::span(text_).subspan(at, std::min(piece, n - at)), at,
					kv.data(), &masses_);
		logits_.assign(decoder.logits().begin(), decoder.logits().end());
		return kv;
	}

	Model model_;
	Text text_;
	KvShape shape_;
	Masses masses_;
	std::vector<float> logits_;
};

TEST_F(DecoderOnRealModel, AgreesWithTheReferenceInFloat32)
{
	auto r = check_reference(model_, KvType::F32, model_dir + "reference.json",
				 model_dir + "heldout.txt");

	ASSERT_TRUE(r) << r.error().what;
	EXPECT_EQ(r->nr_cases, 3u);
	EXPECT_EQ(r->nr_text_equal, 3u);
	EXPECT_LE(r->logit_error, max_logit_error);
	EXPECT_LE(r->mass_error, max_mass_error);
}

TEST_F(DecoderOnRealModel, AgreesWithTheReferenceInFloat16)
{
	auto r = check_reference(model_, KvType::F16, model_dir + "reference.json",
				 model_dir + "heldout.txt");

	ASSERT_TRUE(r) << r.error().what;
	EXPECT_TRUE(r->passed());
}

TEST_F(DecoderOnRealModel, KvHasTheSameBytesHoweverThePromptIsCut)
{
	const auto whole = kv_of(300, 300);
	const auto logits = logits_;

	for (uint32_t piece : {1u, 7u, 64u, 65u}) {
		EXPECT_EQ(kv_of(300, piece), whole) << "pieces of " << piece;
		EXPECT_EQ(logits_, logits) << "pieces of " << piece;
	}
}

TEST_F(DecoderOnRealModel, MassOfEveryHeadSumsToOne)
{
	kv_of(300, 100);

	ASSERT_EQ(masses_.nr_blocks, 19u);
	for (uint32_t h = 0; h < shape_.heads; h++)
		EXPECT_NEAR(
			std::accumulate(masses_.head(h), masses_.head(h) + masses_.nr_blocks, 0.0),
			1.0, 1e-4);
}

TEST_F(DecoderOnRealModel, AChangedKvByteChangesTheLogits)
{
	Decoder decoder(model_, shape_);
	auto kv = kv_of(100, 100);
	const auto next = std::span(text_).subspan(100, 1);

	decoder.forward(next, 100, kv.data(), nullptr);
	const std::vector<float> before(decoder.logits().begin(), decoder.logits().end());
	kv[shape_.block_offset(3, 2) + 1] ^= std::byte{0x40};
	decoder.forward(next, 100, kv.data(), nullptr);
	EXPECT_NE(before, std::vector<float>(decoder.logits().begin(), decoder.logits().end()));
}

} // namespace
} // namespace cxlkv::engine
