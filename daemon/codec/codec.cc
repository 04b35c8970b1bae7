/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Scales and the walk over a block; the loops over channels are in codec_rows.cc. */
#include "codec/codec.h"

#include "codec/codec_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cxlkv::codec {

namespace {

/* Of the channels of a token's values that share a scale: 32 or 64. */
uint32_t group_shift(const Shape &shape)
{
	return shape.dim % 64 ? 5 : 6;
}

uint32_t nr_groups(const Shape &shape)
{
	return shape.dim >> group_shift(shape);
}

size_t floats_per_scale(const Shape &shape)
{
	return shape.format == Format::Int4 ? 2 : 1;
}

size_t row_bytes(const Shape &shape)
{
	return shape.format == Format::Int4 ? shape.dim / 2 : shape.dim;
}

/* 4 KiB. */
constexpr uint32_t kChunkElements = 2048;

size_t nr_key_scales(const Shape &shape)
{
	return shape.dim;
}

size_t nr_value_scales(const Shape &shape)
{
	return size_t{shape.tokens} * nr_groups(shape);
}

/* Encoded half a block with so many scales. */
size_t half_bytes(const Shape &shape, size_t nr_scales)
{
	return nr_scales * floats_per_scale(shape) * sizeof(float) +
	       shape.tokens * row_bytes(shape);
}

} // namespace

size_t Shape::encoded_bytes() const
{
	return half_bytes(*this, nr_key_scales(*this)) + half_bytes(*this, nr_value_scales(*this));
}

std::string check_shape(const Shape &shape)
{
	if (shape.dim == 0 || shape.dim % 32 || shape.dim > 4096)
		return "head dimension must be a multiple of 32 up to 4096";
	if (shape.tokens == 0 || shape.tokens > 65536)
		return "tokens per block must be 1 to 65536";
	if (shape.source > Source::Bf16 || shape.format > Format::Int4)
		return "unknown element type";
	return "";
}

void ErrorStats::add(const ErrorStats &other)
{
	signal += other.signal;
	noise += other.noise;
	dot += other.dot;
	decoded += other.decoded;
}

double ErrorStats::cosine() const
{
	return signal > 0 && decoded > 0 ? dot / std::sqrt(signal * decoded) : 1;
}

Codec::Codec(const Shape &shape) : shape_(shape)
{
	/* The loops work on whole vectors; what is behind the last scale stays zero. */
	size_t n = (std::max(nr_key_scales(shape), nr_value_scales(shape)) + 31) / 32 * 32;

	for (auto *floats : {&scale_, &inverse_, &offset_})
		floats->resize(n);
	low_.resize(n);
	high_.resize(n);
}

bool Codec::encode(std::span<const std::byte> raw, std::span<std::byte> out)
{
	const auto *keys = reinterpret_cast<const uint16_t *>(raw.data());
	const auto *values = keys + size_t{shape_.tokens} * shape_.dim;
	uint32_t shift = group_shift(shape_), groups = nr_groups(shape_);
	Target to = target(out.data(), nr_key_scales(shape_));

	rows().fold(shape_, keys, low_.data(), high_.data());
	if (!encode_rows({keys, shape_.tokens, 0, values}, nr_key_scales(shape_), to))
		return false;
	/* So few rows at a time that they are in the first cache when they are read again. */
	uint32_t most = std::max(1u, kChunkElements / shape_.dim);
	to = target(to.codes, nr_value_scales(shape_));
	for (uint32_t t = 0; t < shape_.tokens; t += most) {
		uint32_t nr = std::min(most, shape_.tokens - t);
		const uint16_t *x = values + size_t{t} * shape_.dim;
		rows().ranges(shape_, x, size_t{nr} * groups, shift, low_.data(), high_.data());
		if (!encode_rows({x, nr, shift, nullptr}, size_t{nr} * groups, to))
			return false;
	}
	return true;
}

/* Where half a block that begins there has its scales, offsets and codes. */
Codec::Target Codec::target(std::byte *half, size_t nr_scales) const
{
	size_t bytes = nr_scales * sizeof(float);

	return {half, half + bytes, half + bytes * floats_per_scale(shape_)};
}

/* Scales for the ranges in low_ and high_, and the rows' codes with them; moves the target on. */
bool Codec::encode_rows(const Run &run, size_t nr_scales, Target &to)
{
	size_t bytes = nr_scales * sizeof(float), whole = (nr_scales + 31) / 32 * 32;

	std::fill(low_.begin() + static_cast<ptrdiff_t>(nr_scales),
		  low_.begin() + static_cast<ptrdiff_t>(whole), 0);
	std::fill(high_.begin() + static_cast<ptrdiff_t>(nr_scales),
		  high_.begin() + static_cast<ptrdiff_t>(whole), 0);
	if (!rows().scales(shape_, low_.data(), high_.data(), whole, scale_.data(), inverse_.data(),
			   offset_.data()))
		return false;
	memcpy(to.scales, scale_.data(), bytes);
	if (shape_.format == Format::Int4)
		memcpy(to.offsets, offset_.data(), bytes);
	rows().encode(shape_, run.x, run.tokens, inverse_.data(), offset_.data(), run.shift,
		      run.next, reinterpret_cast<uint8_t *>(to.codes));
	to.scales += bytes;
	to.offsets += bytes;
	to.codes += run.tokens * row_bytes(shape_);
	return true;
}

void Codec::decode(std::span<const std::byte> in, std::span<std::byte> raw)
{
	auto *x = reinterpret_cast<uint16_t *>(raw.data());
	size_t nr_keys = nr_key_scales(shape_);

	decode_half(in.data(), nr_keys, 0, x);
	decode_half(in.data() + half_bytes(shape_, nr_keys), nr_value_scales(shape_),
		    group_shift(shape_), x + size_t{shape_.tokens} * shape_.dim);
}

void Codec::decode_half(const std::byte *in, size_t nr_scales, uint32_t shift, uint16_t *x)
{
	size_t bytes = nr_scales * sizeof(float);

	/* Copied, as the encoded bytes need not be aligned. */
	memcpy(scale_.data(), in, bytes);
	if (shape_.format == Format::Int4)
		memcpy(offset_.data(), in + bytes, bytes);
	in += bytes * floats_per_scale(shape_);
	rows().decode(shape_, reinterpret_cast<const uint8_t *>(in), scale_.data(), offset_.data(),
		      shift, x);
}

ErrorStats Codec::compare(std::span<const std::byte> raw, std::span<const std::byte> decoded) const
{
	return rows().compare(shape_.source, reinterpret_cast<const uint16_t *>(raw.data()),
			      reinterpret_cast<const uint16_t *>(decoded.data()),
			      raw.size() / sizeof(uint16_t));
}

} // namespace cxlkv::codec
