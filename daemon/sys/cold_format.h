/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What an arena's blocks look like in the cold tier: as in memory, or encoded
 * with loss. Each record of the store says how it was written, so that formats
 * may change while records live. Owned by the I/O thread.
 */
#pragma once

#include "codec/codec.h"
#include "core/types.h"

#include <array>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace cxlkv {

/* What the store keeps as a record's format. On disk: numbers never change their meaning. */
enum class ColdFormat : uint32_t {
	Raw = 0,
	Fp8OfFp16 = 1,
	Fp8OfBf16 = 2,
	Int8OfFp16 = 3,
	Int8OfBf16 = 4,
	Int4OfFp16 = 5,
	Int4OfBf16 = 6,
};

ColdFormat cold_format(codec::Format format, codec::Source source);
/* "raw", "fp8", "int8", "int4"; "unknown" for a number from a later version. */
const char *name_of(ColdFormat format);

/* Bytes of an encoded block in the store, whole pages; 0 where such a block would not be smaller,
 * or is impossible. */
uint32_t stored_bytes(const Geometry &geometry, ColdFormat format);

/* Encodes and decodes the blocks of one arena. */
class BlockCodec {
public:
	explicit BlockCodec(const Geometry &geometry) : geometry_(geometry) {}

	[[nodiscard]] uint32_t stored_bytes(ColdFormat format) const
	{
		return cxlkv::stored_bytes(geometry_, format);
	}
	/*
	 * stored_bytes() to out, which is not 0. False: not everything in the block can
	 * be encoded (a NaN, an infinity, bytes behind K and V), keep it as it is.
	 */
	bool encode(ColdFormat format, const std::byte *block, std::byte *out,
		    codec::ErrorStats &error);
	/* False: not a format of this version, or not the length it has here. */
	bool decode(ColdFormat format, std::span<const std::byte> in, std::byte *block);

private:
	static constexpr size_t nr_formats = 7;
	codec::Codec &codec_of(ColdFormat format);

	const Geometry &geometry_;
	std::array<std::optional<codec::Codec>, nr_formats> codecs_; /* made when first used */
	std::vector<std::byte> decoded_;
};

/* What encoding cost each head of an arena so far. Added to by the I/O thread, read by any. */
class HeadErrors {
public:
	explicit HeadErrors(uint32_t nr_heads) : nr_heads_(nr_heads) {}

	void add(uint32_t head, const codec::ErrorStats &error);
	/* One a head; empty while nothing was encoded. */
	[[nodiscard]] std::vector<codec::ErrorStats> all() const;

private:
	const uint32_t nr_heads_;
	mutable std::mutex mutex_;
	std::vector<codec::ErrorStats> heads_;
};

} // namespace cxlkv
