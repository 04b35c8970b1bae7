/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/decoder.h"

#include <algorithm>
#include <cmath>

namespace cxlkv::engine {

namespace {

constexpr size_t max_rows = 64; /* of one matrix product; more does not get faster */
constexpr float norm_epsilon = 1e-5f;
constexpr double rope_theta = 10000.0;

void rms_norm(const float *x, const std::vector<float> &weight, float *out)
{
	const size_t n = weight.size();
	float squares = 0;

	for (size_t i = 0; i < n; i++)
		squares += x[i] * x[i];
	const float scale = 1.0f / std::sqrt(squares / static_cast<float>(n) + norm_epsilon);
	for (size_t i = 0; i < n; i++)
		out[i] = x[i] * scale * weight[i];
}

} // namespace

Decoder::Decoder(const Model &model, const KvShape &shape) : model_(model), shape_(shape)
{
	const ModelShape &s = model.shape;
	const Layer &first = model.layers.front();
	const size_t half = s.head_dim / 2;

	cos_.resize(shape.max_tokens * half);
	sin_.resize(shape.max_tokens * half);
	for (size_t t = 0; t < shape.max_tokens; t++)
		for (size_t i = 0; i < half; i++) {
			double f = std::pow(rope_theta, -2.0 * static_cast<double>(i) / s.head_dim);
			cos_[t * half + i] =
				static_cast<float>(std::cos(static_cast<double>(t) * f));
			sin_[t * half + i] =
				static_cast<float>(std::sin(static_cast<double>(t) * f));
		}
	x_.resize(max_rows * s.dim);
	h_.resize(max_rows * s.dim);
	q_.resize(max_rows * first.wq.stride());
	k_.resize(max_rows * first.wk.stride());
	v_.resize(max_rows * first.wv.stride());
	att_.resize(max_rows * s.q_dim());
	gate_.resize(max_rows * first.gate.stride());
	up_.resize(max_rows * first.up.stride());
	delta_.resize(max_rows * std::max(first.wo.stride(), first.down.stride()));
	scores_.resize(shape.max_tokens);
	logits_.resize(model.unembed.stride());
}

uint8_t Decoder::best() const
{
	return static_cast<uint8_t>(std::max_element(logits_.begin(), logits_.end()) -
				    logits_.begin());
}

void Decoder::forward(std::span<const uint8_t> tokens, uint32_t position, std::byte *kv,
		      Masses *masses)
{
	while (tokens.size() > max_rows) {
		forward_rows(tokens.first(max_rows), position, kv, nullptr);
		tokens = tokens.subspan(max_rows);
		position += max_rows;
	}
	if (tokens.empty())
		return;
	forward_rows(tokens, position, kv, masses);
	rms_norm(&x_[(tokens.size() - 1) * model_.shape.dim], model_.final_norm, h_.data());
	matmul(model_.unembed, h_.data(), model_.shape.dim, 1, logits_.data());
}

void Decoder::forward_rows(std::span<const uint8_t> tokens, uint32_t position, std::byte *kv,
			   Masses *masses)
{
	const size_t dim = model_.shape.dim;

	if (masses) {
		masses->nr_blocks =
			shape_.blocks_for(position + static_cast<uint32_t>(tokens.size()));
		masses->mass.assign(size_t{shape_.heads} * masses->nr_blocks, 0.0f);
	}
	for (size_t r = 0; r < tokens.size(); r++)
		std::copy_n(&model_.embedding[tokens[r] * dim], dim, &x_[r * dim]);
	for (uint32_t i = 0; i < model_.shape.layers; i++)
		layer(model_.layers[i], i, tokens.size(), position, kv, masses);
}

void Decoder::layer(const Layer &weights, uint32_t index, size_t nr, uint32_t position,
		    std::byte *kv, Masses *masses)
{
	const ModelShape &s = model_.shape;

	for (size_t r = 0; r < nr; r++)
		rms_norm(&x_[r * s.dim], weights.norm1, &h_[r * s.dim]);
	matmul(weights.wq, h_.data(), s.dim, nr, q_.data());
	matmul(weights.wk, h_.data(), s.dim, nr, k_.data());
	matmul(weights.wv, h_.data(), s.dim, nr, v_.data());
	for (size_t r = 0; r < nr; r++) {
		rotate(&q_[r * weights.wq.stride()], s.heads, position + static_cast<uint32_t>(r));
		rotate(&k_[r * weights.wk.stride()], s.kv_heads,
		       position + static_cast<uint32_t>(r));
	}
	store_kv(index, nr, position, kv);

	/* A row reads the rows before it and itself only, so causality needs no mask. */
	for (uint32_t head = 0; head < s.heads; head++) {
		const uint32_t kv_head = index * s.kv_heads + head / s.group();
		for (size_t r = 0; r < nr; r++) {
			float *mass = masses && r == nr - 1
					      ? &masses->mass[size_t{kv_head} * masses->nr_blocks]
					      : nullptr;
			attend(kv_head, &q_[r * weights.wq.stride() + size_t{head} * s.head_dim],
			       &att_[r * s.q_dim() + size_t{head} * s.head_dim],
			       position + static_cast<uint32_t>(r) + 1, kv, mass);
		}
	}
	matmul(weights.wo, att_.data(), s.q_dim(), nr, delta_.data());
	add(delta_, nr);
	feed_forward(weights, nr);
}

void Decoder::feed_forward(const Layer &weights, size_t nr)
{
	const size_t dim = model_.shape.dim;

	for (size_t r = 0; r < nr; r++)
		rms_norm(&x_[r * dim], weights.norm2, &h_[r * dim]);
	matmul(weights.gate, h_.data(), dim, nr, gate_.data());
	matmul(weights.up, h_.data(), dim, nr, up_.data());
	silu_mul(gate_.data(), up_.data(), nr * weights.gate.stride());
	matmul(weights.down, gate_.data(), weights.gate.stride(), nr, delta_.data());
	add(delta_, nr);
}

/* x += delta, whose rows are padded to a whole panel. */
void Decoder::add(const std::vector<float> &delta, size_t nr)
{
	const size_t dim = model_.shape.dim, stride = model_.layers.front().wo.stride();

	for (size_t r = 0; r < nr; r++)
		for (size_t i = 0; i < dim; i++)
			x_[r * dim + i] += delta[r * stride + i];
}

void Decoder::rotate(float *row, uint32_t nr_heads, uint32_t position) const
{
	const size_t half = model_.shape.head_dim / 2;
	const float *c = &cos_[position * half], *s = &sin_[position * half];

	for (uint32_t h = 0; h < nr_heads; h++, row += 2 * half)
		for (size_t i = 0; i < half; i++) {
			const float a = row[2 * i], b = row[2 * i + 1];
			row[2 * i] = a * c[i] - b * s[i];
			row[2 * i + 1] = a * s[i] + b * c[i];
		}
}

void Decoder::store_kv(uint32_t layer_index, size_t nr, uint32_t position, std::byte *kv)
{
	const ModelShape &s = model_.shape;
	const size_t row_bytes = s.head_dim * elem_bytes(shape_.type);
	const size_t k_stride = model_.layers.front().wk.stride();

	for (uint32_t h = 0; h < s.kv_heads; h++)
		for (size_t r = 0; r < nr; r++) {
			const uint32_t t = position + static_cast<uint32_t>(r);
			std::byte *block = kv + shape_.block_offset(layer_index * s.kv_heads + h,
								    t / shape_.tokens_per_block);
			std::byte *k = block + t % shape_.tokens_per_block * row_bytes;
			std::byte *v = k + shape_.tokens_per_block * row_bytes;
			store_elements(shape_.type, &k_[r * k_stride + size_t{h} * s.head_dim],
				       s.head_dim, k);
			store_elements(shape_.type, &v_[r * k_stride + size_t{h} * s.head_dim],
				       s.head_dim, v);
		}
}

/* One query head at one position over the first tokens of its KV head. */
void Decoder::attend(uint32_t head, const float *q, float *out, uint32_t tokens,
		     const std::byte *kv, float *mass)
{
	const size_t dim = shape_.head_dim, per_block = shape_.tokens_per_block;
	const size_t value_offset = shape_.block_bytes() / 2;
	const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
	const float share = 1.0f / static_cast<float>(model_.shape.group());
	const uint32_t nr_blocks = shape_.blocks_for(tokens);
	auto in_block = [&](uint32_t b) {
		return std::min<size_t>(per_block, tokens - b * per_block);
	};

	for (uint32_t b = 0; b < nr_blocks; b++)
		key_scores(shape_.type, kv + shape_.block_offset(head, b), in_block(b), dim, q,
			   scale, &scores_[b * per_block]);
	softmax(scores_.data(), tokens);
	std::fill_n(out, dim, 0.0f);
	for (uint32_t b = 0; b < nr_blocks; b++) {
		const float *p = &scores_[b * per_block];
		add_values(shape_.type, kv + shape_.block_offset(head, b) + value_offset,
			   in_block(b), dim, p, out);
		for (size_t j = 0; mass && j < in_block(b); j++)
			mass[b] += p[j] * share;
	}
}

} // namespace cxlkv::engine
