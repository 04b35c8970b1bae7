/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * KV blocks in fewer bits: FP16 or BF16 to FP8 (E4M3), INT8 or INT4 and back.
 * Lossy, so off unless asked for. A block is K [tokens][dim], then V [tokens][dim].
 * Keys are scaled per channel over all tokens of the block, values per token in
 * groups of channels, which is where each has its outliers. SIMD by what the CPU
 * has, found at run time. Any CPU decodes what another one encoded, but not always
 * to the same bits: a fused multiply-add rounds once, where others round twice, so
 * that a value half-way between two codes, or two results, may become either.
 *
 * Encoded half (K, then V): scales, for INT4 then offsets, then codes.
 *   FP8   x = e4m3(code) * scale        scale: float, largest |x| / 448
 *   INT8  x = code * scale              scale: float, largest |x| / 127
 *   INT4  x = offset + code * scale     scale: float, (largest - smallest) / 15
 * Of INT4 a byte holds channel c of the first half of the row below channel
 * c + dim / 2.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cxlkv::codec {

enum class Source : uint8_t { Fp16, Bf16 };
enum class Format : uint8_t { Fp8, Int8, Int4 };

struct Shape {
	uint32_t tokens = 0;
	uint32_t dim = 0; /* channels of a head; a multiple of 32 */
	Source source = Source::Fp16;
	Format format = Format::Int8;

	[[nodiscard]] size_t raw_bytes() const { return size_t{2} * 2 * tokens * dim; }
	[[nodiscard]] size_t encoded_bytes() const;
};

/* "" or what is wrong with it. */
std::string check_shape(const Shape &shape);

/* What encoding cost, against the exact values. */
struct ErrorStats {
	double signal = 0, noise = 0, dot = 0, decoded = 0; /* sums of x*x, (x-y)^2, x*y, y*y */

	void add(const ErrorStats &other);
	[[nodiscard]] double nmse() const { return signal > 0 ? noise / signal : 0; }
	[[nodiscard]] double cosine() const;
};

/* Scratch of one thread, so that blocks cost no allocation. */
class Codec {
public:
	/* The shape was checked. */
	explicit Codec(const Shape &shape);

	/*
	 * False: the block has a NaN or an infinity, which no scale can hold; keep it as
	 * it is. raw and out are raw_bytes() and encoded_bytes() long.
	 */
	bool encode(std::span<const std::byte> raw, std::span<std::byte> out);
	/* Any bytes decode to something; damage is the checksum's business. */
	void decode(std::span<const std::byte> in, std::span<std::byte> raw);
	[[nodiscard]] ErrorStats compare(std::span<const std::byte> raw,
					 std::span<const std::byte> decoded) const;

private:
	/* Rows to encode; next: rows that come after them. */
	struct Run {
		const uint16_t *x;
		uint32_t tokens, shift;
		const uint16_t *next;
	};
	struct Target {
		std::byte *scales, *offsets, *codes;
	};
	[[nodiscard]] Target target(std::byte *half, size_t nr_scales) const;
	bool encode_rows(const Run &run, size_t nr_scales, Target &to);
	void decode_half(const std::byte *in, size_t nr_scales, uint32_t shift, uint16_t *x);

	Shape shape_;
	std::vector<float> scale_, inverse_, offset_; /* of half a block */
	std::vector<int16_t> low_, high_;
};

/* The instruction set in use, for reports. */
const char *simd_target();

} // namespace cxlkv::codec
