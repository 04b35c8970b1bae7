/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/cold_format.h"

#include <algorithm>
#include <cstring>

namespace cxlkv {

namespace {

constexpr uint32_t page_bytes = 4096; /* unit of the store's I/O */

/* Impossible ones are Raw to the caller. */
std::optional<codec::Shape> shape_of(const Geometry &g, ColdFormat format)
{
	auto number = static_cast<uint32_t>(format);

	if (format == ColdFormat::Raw || number > static_cast<uint32_t>(ColdFormat::Int4OfBf16) ||
	    g.elem_bytes != 2)
		return {};
	codec::Shape shape{g.tokens_per_block, g.head_dim,
			   static_cast<codec::Source>((number - 1) % 2),
			   static_cast<codec::Format>((number - 1) / 2)};
	return codec::check_shape(shape).empty() ? std::optional(shape) : std::nullopt;
}

} // namespace

ColdFormat cold_format(codec::Format format, codec::Source source)
{
	return static_cast<ColdFormat>(1 + 2 * static_cast<uint32_t>(format) +
				       static_cast<uint32_t>(source));
}

const char *name_of(ColdFormat format)
{
	switch (format) {
	case ColdFormat::Raw:
		return "raw";
	case ColdFormat::Fp8OfFp16:
	case ColdFormat::Fp8OfBf16:
		return "fp8";
	case ColdFormat::Int8OfFp16:
	case ColdFormat::Int8OfBf16:
		return "int8";
	case ColdFormat::Int4OfFp16:
	case ColdFormat::Int4OfBf16:
		return "int4";
	}
	return "unknown";
}

uint32_t stored_bytes(const Geometry &geometry, ColdFormat format)
{
	auto shape = shape_of(geometry, format);
	if (!shape)
		return 0;
	size_t bytes = (shape->encoded_bytes() + page_bytes - 1) / page_bytes * page_bytes;
	return bytes < geometry.block_bytes ? static_cast<uint32_t>(bytes) : 0;
}

codec::Codec &BlockCodec::codec_of(ColdFormat format)
{
	auto &codec = codecs_[static_cast<uint32_t>(format)];

	if (!codec)
		codec.emplace(*shape_of(geometry_, format));
	return *codec;
}

bool BlockCodec::encode(ColdFormat format, const std::byte *block, std::byte *out,
			codec::ErrorStats &error)
{
	codec::Shape shape = *shape_of(geometry_, format);
	codec::Codec &codec = codec_of(format);
	std::span<const std::byte> raw(block, shape.raw_bytes());
	size_t bytes = shape.encoded_bytes();

	/* What lies behind V belongs to nobody, but it is not ours to clear. */
	if (std::any_of(block + raw.size(), block + geometry_.block_bytes,
			[](std::byte b) { return b != std::byte{0}; }))
		return false;
	if (!codec.encode(raw, {out, bytes}))
		return false;
	memset(out + bytes, 0, stored_bytes(format) - bytes);
	decoded_.resize(raw.size());
	codec.decode({out, bytes}, decoded_);
	error = codec.compare(raw, decoded_);
	return true;
}

bool BlockCodec::decode(ColdFormat format, std::span<const std::byte> in, std::byte *block)
{
	auto shape = shape_of(geometry_, format);

	if (!shape || in.size() != stored_bytes(format))
		return false;
	size_t bytes = shape->raw_bytes();
	codec_of(format).decode(in.first(shape->encoded_bytes()), {block, bytes});
	memset(block + bytes, 0, geometry_.block_bytes - bytes);
	return true;
}

void HeadErrors::add(uint32_t head, const codec::ErrorStats &error)
{
	std::lock_guard lock(mutex_);

	heads_.resize(nr_heads_);
	heads_[head].add(error);
}

std::vector<codec::ErrorStats> HeadErrors::all() const
{
	std::lock_guard lock(mutex_);
	return heads_;
}

} // namespace cxlkv
