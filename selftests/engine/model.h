/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Weights of a byte-level llama-family decoder, read from the file format of
 * model/README.md. A file is used only when header and size agree.
 */
#pragma once

#include "base/result.h"
#include "engine/kernels.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cxlkv::engine {

struct ModelShape {
	uint32_t dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;

	[[nodiscard]] uint32_t q_dim() const { return heads * head_dim; }
	[[nodiscard]] uint32_t kv_dim() const { return kv_heads * head_dim; }
	[[nodiscard]] uint32_t group() const
	{
		return heads / kv_heads;
	} /* query heads of a KV head */
	[[nodiscard]] uint32_t kv_heads_total() const { return layers * kv_heads; }
};

struct Layer {
	std::vector<float> norm1, norm2;
	Matrix wq, wk, wv, wo, gate, up, down;
};

struct Model {
	ModelShape shape;
	std::vector<float> embedding; /* [vocab][dim] */
	Matrix unembed;               /* the same values: the embedding is tied */
	std::vector<Layer> layers;
	std::vector<float> final_norm;
	uint64_t weights_hash = 0;

	static Result<Model> load(const std::string &path);
};

} // namespace cxlkv::engine
