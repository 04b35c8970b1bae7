/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/perplexity.h"

#include "engine/decoder.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

namespace cxlkv::engine {

namespace {

/* -ln of what the logits give that token. */
double surprise(std::span<const float> logits, uint8_t token)
{
	double most = *std::max_element(logits.begin(), logits.end());
	double sum = std::accumulate(logits.begin(), logits.end(), 0.0, [most](double s, float x) {
		return s + std::exp(double{x} - most);
	});

	return most + std::log(sum) - double{logits[token]};
}

/* Spills and restores blocks without a tier. */
class Lossy {
public:
	Lossy(const KvShape &shape, codec::Format format)
	    : shape_(shape), codec_shape_{shape.tokens_per_block, shape.head_dim,
					  codec::Source::Fp16, format},
	      codec_(codec_shape_), coded_(codec_shape_.encoded_bytes()),
	      decoded_(codec_shape_.raw_bytes())
	{
	}

	/* That block of every head. */
	void pass(std::byte *kv, uint32_t block, std::vector<codec::ErrorStats> &heads)
	{
		for (uint32_t head = 0; head < shape_.heads; head++) {
			std::span<std::byte> raw(kv + shape_.block_offset(head, block),
						 decoded_.size());
			if (!codec_.encode(raw, coded_))
				continue; /* stays as it is, as in the store */
			codec_.decode(coded_, decoded_);
			heads[head].add(codec_.compare(raw, decoded_));
			std::ranges::copy(decoded_, raw.begin());
		}
	}

private:
	const KvShape &shape_;
	const codec::Shape codec_shape_;
	codec::Codec codec_;
	std::vector<std::byte> coded_, decoded_;
};

} // namespace

double PerplexityResult::perplexity() const
{
	return std::exp(nats / nr_predicted);
}

double PerplexityResult::bits_per_byte() const
{
	return nats / nr_predicted / std::log(2.0);
}

codec::ErrorStats PerplexityResult::error() const
{
	codec::ErrorStats sum;

	for (const codec::ErrorStats &head : heads)
		sum.add(head);
	return sum;
}

double PerplexityResult::worst_nmse() const
{
	double worst = 0;

	for (const codec::ErrorStats &head : heads)
		worst = std::max(worst, head.nmse());
	return worst;
}

Result<PerplexityResult> measure_perplexity(const PerplexityOptions &options, const Model &model,
					    const Text &text)
{
	const uint32_t context = options.context, per_block = options.tokens_per_block;
	Result<KvShape> shape = KvShape::create(model.shape, per_block, context, KvType::F16);
	if (!shape)
		return shape.error();
	if (options.tokens < context || options.tokens > text.size() || context < 2)
		return error(
			EINVAL,
			fmt::format("{} tokens: at least one context of {}, at most the text's {}",
				    options.tokens, context, text.size()));
	std::optional<Lossy> lossy;
	if (options.format)
		lossy.emplace(*shape, *options.format);

	PerplexityResult result;
	result.heads.resize(shape->heads);
	Decoder decoder(model, *shape);
	std::vector<std::byte> kv(shape->slot_bytes());
	for (uint32_t begin = 0; begin + context <= options.tokens; begin += context) {
		std::span<const uint8_t> piece = std::span(text).subspan(begin, context);
		for (uint32_t t = 0; t + 1 < context; t++) {
			decoder.forward(piece.subspan(t, 1), t, kv.data(), nullptr);
			result.nats += surprise(decoder.logits(), piece[t + 1]);
			result.nr_predicted++;
			if (lossy && (t + 1) % per_block == 0)
				lossy->pass(kv.data(), t / per_block, result.heads);
		}
	}
	return result;
}

} // namespace cxlkv::engine
