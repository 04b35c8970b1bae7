/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lossy formats on the KV of a real model: how far it is from the original, and what the model
 * makes of it. */
#include "engine/perplexity.h"

#include <gtest/gtest.h>

using namespace cxlkv;
using namespace cxlkv::engine;
using codec::Format;

namespace {

const std::string folder = "selftests/engine/model/";

class EngineFormats : public testing::Test {
protected:
	static void SetUpTestSuite()
	{
		auto loaded = Model::load(folder + "tiny-llama.bin");
		auto read = read_text(folder + "heldout.txt");
		ASSERT_TRUE(loaded) << loaded.error().what;
		ASSERT_TRUE(read) << read.error().what;
		model = std::make_unique<Model>(std::move(*loaded));
		text = std::move(*read);
		raw = measure({});
	}
	static PerplexityResult measure(std::optional<Format> format)
	{
		PerplexityOptions options;
		options.tokens = 2048;
		options.context = 1024;
		options.format = format;
		auto result = measure_perplexity(options, *model, text);
		EXPECT_TRUE(result) << result.error().what;
		return *result;
	}
	static double change(const PerplexityResult &result)
	{
		return result.perplexity() / raw.perplexity() - 1;
	}

	static inline std::unique_ptr<Model> model;
	static inline Text text;
	static inline PerplexityResult raw;
};

TEST_F(EngineFormats, WithoutAFormatNothingIsLost)
{
	EXPECT_EQ(raw.error().signal, 0);
	EXPECT_EQ(raw.nr_predicted, 2u * 1023);
	EXPECT_LT(raw.bits_per_byte(), 2.5);
}

TEST_F(EngineFormats, Int8)
{
	auto result = measure(Format::Int8);
	EXPECT_LE(result.error().nmse(), 1e-4);
	EXPECT_GT(result.error().nmse(), 0);
	EXPECT_LE(result.worst_nmse(), 2e-4);
	EXPECT_LT(std::abs(change(result)), 0.002);
}

TEST_F(EngineFormats, Fp8)
{
	auto result = measure(Format::Fp8);
	EXPECT_LE(result.error().nmse(), 2e-3);
	EXPECT_LT(std::abs(change(result)), 0.01);
}

TEST_F(EngineFormats, Int4)
{
	auto result = measure(Format::Int4);
	EXPECT_LE(result.error().nmse(), 2e-2);
	EXPECT_LT(std::abs(change(result)), 0.05);
}

TEST_F(EngineFormats, ATextShorterThanAContextIsRefused)
{
	PerplexityOptions options;
	options.tokens = 1023;
	EXPECT_FALSE(measure_perplexity(options, *model, text));
	options.tokens = UINT32_MAX;
	EXPECT_FALSE(measure_perplexity(options, *model, text));
}

} // namespace
