/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The forward pass: RMSNorm, RoPE on interleaved pairs, grouped-query
 * attention over KV blocks, SwiGLU, tied embedding. Knows nothing of
 * conversations or of where KV memory comes from.
 */
#pragma once

#include "engine/kv_memory.h"
#include "engine/model.h"

#include <cstdint>
#include <span>
#include <vector>

namespace cxlkv::engine {

class Decoder {
public:
	/* The model must outlive the decoder. */
	Decoder(const Model &model, const KvShape &shape);

	/*
	 * Computes tokens at positions [position, position + tokens.size()) of the
	 * slot at kv: writes their K and V, leaves logits() of the last one.
	 * The blocks up to there are leased, those before position are filled.
	 * masses, where not null, gets the attention mass of the last position.
	 */
	void forward(std::span<const uint8_t> tokens, uint32_t position, std::byte *kv,
		     Masses *masses);

	[[nodiscard]] std::span<const float> logits() const { return logits_; }
	/* The most likely next byte; the lowest of equals. */
	[[nodiscard]] uint8_t best() const;

private:
	void forward_rows(std::span<const uint8_t> tokens, uint32_t position, std::byte *kv,
			  Masses *masses);
	void layer(const Layer &weights, uint32_t index, size_t nr, uint32_t position,
		   std::byte *kv, Masses *masses);
	void feed_forward(const Layer &weights, size_t nr);
	void rotate(float *row, uint32_t nr_heads, uint32_t position) const;
	void store_kv(uint32_t layer_index, size_t nr, uint32_t position, std::byte *kv);
	void attend(uint32_t head, const float *q, float *out, uint32_t tokens, const std::byte *kv,
		    float *mass);
	void add(const std::vector<float> &delta, size_t nr);

	const Model &model_;
	KvShape shape_;
	std::vector<float> cos_, sin_; /* [position][head_dim / 2] */
	std::vector<float> x_, h_, q_, k_, v_, att_, gate_, up_, delta_; /* rows of a chunk */
	std::vector<float> scores_; /* one position's attention */
	std::vector<float> logits_;
};

} // namespace cxlkv::engine
