/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Scales and the walk over a block; the loops over channels are in codec_rows.cc. */
#include "codec/codec.h"

#include "codec/codec_rows.h"

#include <algorithm>
#include <bit>
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

float half_to_float(uint16_t bits)
{
	uint32_t sign = uint32_t{bits & 0x8000u} << 16;
	uint32_t wide = uint32_t{bits & 0x7fffu} << 13;
	/* The exponent is biased by 15, not 127: a factor mends that, for subnormals too. */
	float magnitude = (bits & 0x7c00) == 0x7c00 ? std::bit_cast<float>(wide | 0x7f800000)
						    : std::bit_cast<float>(wide) * 0x1p112f;
	return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

float to_float(Source source, uint16_t bits)
{
	return source == Source::Fp16 ? half_to_float(bits)
				      : std::bit_cast<float>(uint32_t{bits} << 16);
}

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
	size_t nr_keys = nr_key_scales(shape_), nr_values = nr_value_scales(shape_);
	uint32_t shift = group_shift(shape_);

	rows().fold(keys, shape_.tokens, shape_.dim, low_.data(), high_.data());
	if (!encode_half(keys, nr_keys, 0, out.data()))
		return false;
	rows().ranges(values, shape_.tokens, shape_.dim, shift, low_.data(), high_.data());
	return encode_half(values, nr_values, shift, out.data() + half_bytes(shape_, nr_keys));
}

bool Codec::encode_half(const uint16_t *x, size_t nr_scales, uint32_t shift, std::byte *out)
{
	size_t bytes = nr_scales * sizeof(float), whole = (nr_scales + 31) / 32 * 32;

	std::fill(low_.begin() + static_cast<ptrdiff_t>(nr_scales), low_.end(), 0);
	std::fill(high_.begin() + static_cast<ptrdiff_t>(nr_scales), high_.end(), 0);
	if (!rows().scales(shape_, low_.data(), high_.data(), whole, scale_.data(), inverse_.data(),
			   offset_.data()))
		return false;
	memcpy(out, scale_.data(), bytes);
	if (shape_.format == Format::Int4)
		memcpy(out + bytes, offset_.data(), bytes);
	out += bytes * floats_per_scale(shape_);
	rows().encode(shape_, x, inverse_.data(), offset_.data(), shift,
		      reinterpret_cast<uint8_t *>(out));
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
	ErrorStats out;

	for (size_t i = 0; i < raw.size(); i += sizeof(uint16_t)) {
		uint16_t a, b;
		memcpy(&a, raw.data() + i, sizeof(a));
		memcpy(&b, decoded.data() + i, sizeof(b));
		double x = to_float(shape_.source, a), y = to_float(shape_.source, b);
		out.signal += x * x;
		out.noise += (x - y) * (x - y);
		out.dot += x * y;
		out.decoded += y * y;
	}
	return out;
}

} // namespace cxlkv::codec
