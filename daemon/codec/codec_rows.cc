/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compiled once for each instruction set that Highway knows; rows() picks at run time. */
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/codec_rows.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/codec_rows.h"

HWY_BEFORE_NAMESPACE();
namespace cxlkv::codec {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::Rebind<int32_t, F32>;
using U32 = hn::Rebind<uint32_t, F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using F16 = hn::Rebind<hwy::float16_t, F32>;
using U8 = hn::Rebind<uint8_t, F32>;
using I8 = hn::Rebind<int8_t, F32>;
using Vec = hn::Vec<F32>;

constexpr size_t kLineElements = 64 / sizeof(uint16_t); /* of a cache line */

template <Source source, class D> HWY_INLINE hn::Vec<D> load_as(D d, const uint16_t *x)
{
	auto bits = hn::LoadU(hn::Rebind<uint16_t, D>(), x);
	if constexpr (source == Source::Fp16)
		return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
	else
		return hn::BitCast(
			d, hn::ShiftLeft<16>(hn::PromoteTo(hn::Rebind<uint32_t, D>(), bits)));
}

template <Source source> HWY_INLINE Vec load(const uint16_t *x)
{
	return load_as<source>(F32(), x);
}

/* Rounds to nearest, ties to even. */
template <Source source> HWY_INLINE void store(Vec v, uint16_t *x)
{
	if constexpr (source == Source::Fp16) {
		hn::StoreU(hn::BitCast(U16(), hn::DemoteTo(F16(), v)), U16(), x);
	} else {
		U32 d;
		auto bits = hn::BitCast(d, v);
		auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
		bits = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff))));
		hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(I32(), bits)), U16(), x);
	}
}

/* Factors of the channels from i on: one each, or one for all, as no vector is longer than a group.
 */
struct Factors {
	const float *at;
	uint32_t shift;

	HWY_INLINE Vec load(size_t i) const
	{
		return shift ? hn::Set(F32(), at[i >> shift]) : hn::LoadU(F32(), at + i);
	}
};

/*
 * FP16 and BF16 bits in an order that integers compare as the numbers would (-0
 * below +0). It is its own inverse.
 */
template <class D, class V> HWY_INLINE V ordered(D d, V v)
{
	return hn::Xor(v, hn::And(hn::ShiftRight<15>(v), hn::Set(d, 0x7fff)));
}

using I16 = hn::ScalableTag<int16_t>;

/*
 * What the ends of a range are found by: of formats that are symmetric around zero
 * only the magnitude counts, which is the larger end.
 */
template <bool symmetric> HWY_INLINE hn::Vec<I16> load_ordered(const uint16_t *x)
{
	I16 d;
	auto v = hn::LoadU(d, reinterpret_cast<const int16_t *>(x));
	if constexpr (symmetric)
		return hn::And(v, hn::Set(d, 0x7fff));
	else
		return ordered(d, v);
}

template <bool symmetric>
void fold_rows(const uint16_t *x, size_t tokens, size_t dim, int16_t *low, int16_t *high)
{
	I16 d;
	for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
		auto v = load_ordered<symmetric>(x + i);
		hn::StoreU(v, d, low + i);
		hn::StoreU(v, d, high + i);
	}
	for (size_t t = 1; t < tokens; t++) {
		for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
			auto v = load_ordered<symmetric>(x + t * dim + i);
			if constexpr (!symmetric)
				hn::StoreU(hn::Min(v, hn::LoadU(d, low + i)), d, low + i);
			hn::StoreU(hn::Max(v, hn::LoadU(d, high + i)), d, high + i);
		}
	}
}

template <bool symmetric>
void ranges_of(const uint16_t *x, size_t nr, uint32_t group_shift, int16_t *low, int16_t *high)
{
	I16 d;
	size_t size = size_t{1} << group_shift;
	for (size_t group = 0; group < nr; group++, x += size) {
		auto least = load_ordered<symmetric>(x), most = least;
		for (size_t i = hn::Lanes(d); i < size; i += hn::Lanes(d)) {
			auto v = load_ordered<symmetric>(x + i);
			least = hn::Min(least, v);
			most = hn::Max(most, v);
		}
		if constexpr (!symmetric)
			low[group] = hn::GetLane(hn::MinOfLanes(d, least));
		high[group] = hn::GetLane(hn::MaxOfLanes(d, most));
	}
}

void fold(const Shape &s, const uint16_t *x, int16_t *low, int16_t *high)
{
	if (s.format == Format::Int4)
		fold_rows<false>(x, s.tokens, s.dim, low, high);
	else
		fold_rows<true>(x, s.tokens, s.dim, low, high);
}

void ranges(const Shape &s, const uint16_t *x, size_t nr, uint32_t group_shift, int16_t *low,
	    int16_t *high)
{
	if (s.format == Format::Int4)
		ranges_of<false>(x, nr, group_shift, low, high);
	else
		ranges_of<true>(x, nr, group_shift, low, high);
}

/* Ordered integers back to numbers. */
template <Source source> HWY_INLINE Vec unordered(const int16_t *x)
{
	hn::Rebind<int16_t, F32> d;
	auto bits = hn::BitCast(U16(), ordered(d, hn::LoadU(d, x)));
	if constexpr (source == Source::Fp16)
		return hn::PromoteTo(F32(), hn::BitCast(F16(), bits));
	else
		return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

/* The codec's factors: largest / 448, largest / 127, or a fifteenth of the range. */
template <Source source, bool symmetric>
bool make_scales(float levels, const int16_t *low, const int16_t *high, size_t n, float *scale,
		 float *inverse, float *offset)
{
	F32 df;
	auto finite = hn::Eq(hn::Zero(df), hn::Zero(df));
	auto largest_finite = hn::Set(df, source == Source::Fp16 ? 65504.0f : 3.3895314e38f);
	auto level = hn::Set(df, 1.0f / levels);
	for (size_t i = 0; i < n; i += hn::Lanes(df)) {
		auto most = unordered<source>(high + i), s = hn::Mul(most, level);
		/* False for NaN too: it sorts beyond the infinities, at one end or the other. */
		finite = hn::And(finite, hn::Le(hn::Abs(most), largest_finite));
		if constexpr (!symmetric) {
			auto least = unordered<source>(low + i);
			finite = hn::And(finite, hn::Le(hn::Abs(least), largest_finite));
			/* most - least could overflow. */
			s = hn::Sub(s, hn::Mul(least, level));
			hn::StoreU(least, df, offset + i);
		}
		/* A scale so small that its inverse overflows stands for zero. */
		auto zero = hn::Lt(s, hn::Set(df, 1e-37f));
		hn::StoreU(hn::IfThenZeroElse(zero, s), df, scale + i);
		hn::StoreU(hn::IfThenZeroElse(zero, hn::Div(hn::Set(df, 1.0f), s)), df,
			   inverse + i);
	}
	return hn::AllTrue(df, finite);
}

template <Source source>
bool scales_of(Format format, const int16_t *low, const int16_t *high, size_t n, float *scale,
	       float *inverse, float *offset)
{
	if (format == Format::Int4)
		return make_scales<source, false>(15, low, high, n, scale, inverse, offset);
	return make_scales<source, true>(format == Format::Fp8 ? 448 : 127, low, high, n, scale,
					 inverse, offset);
}

bool scales(const Shape &s, const int16_t *low, const int16_t *high, size_t n, float *scale,
	    float *inverse, float *offset)
{
	return s.source == Source::Fp16
		       ? scales_of<Source::Fp16>(s.format, low, high, n, scale, inverse, offset)
		       : scales_of<Source::Bf16>(s.format, low, high, n, scale, inverse, offset);
}

/* |y| is at most 448 but for rounding. */
HWY_INLINE hn::Vec<I32> to_e4m3(Vec y)
{
	F32 df;
	I32 di;
	auto bits = hn::BitCast(di, y);
	auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80));
	auto magnitude = hn::Abs(y);
	auto abs_bits = hn::BitCast(di, magnitude);
	/* To three bits of mantissa, ties to even; a carry goes into the exponent as it should. */
	auto odd = hn::And(hn::ShiftRight<20>(abs_bits), hn::Set(di, 1));
	auto normal = hn::ShiftRight<20>(hn::Add(abs_bits, hn::Add(odd, hn::Set(di, 0x7ffff))));
	normal = hn::Sub(normal, hn::Set(di, (127 - 7) << 3));
	/* Below 2^-6 codes count in steps of 2^-9. */
	auto small = hn::NearestInt(hn::Mul(magnitude, hn::Set(df, 512.0f)));
	auto is_small = hn::RebindMask(di, hn::Lt(magnitude, hn::Set(df, 0.015625f)));
	auto code = hn::Min(hn::IfThenElse(is_small, small, normal), hn::Set(di, 0x7e));
	return hn::Or(code, sign);
}

/* Without its factor of 2^8, which the scale takes along: as FP16 bits, exponent biased by 15
 * for 7. */
HWY_INLINE Vec from_e4m3(const uint8_t *codes)
{
	U16 d;
	auto code = hn::PromoteTo(d, hn::LoadU(U8(), codes));
	auto magnitude = hn::ShiftLeft<7>(hn::And(code, hn::Set(d, 0x7f)));
	auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(d, 0x80)));
	return hn::PromoteTo(F32(), hn::BitCast(F16(), hn::Or(magnitude, sign)));
}

/*
 * 1.5 * 2^23 more than a small number is that number rounded to an integer, ties to
 * even, in the lowest bits. The scales keep it small enough for the bits that are used.
 */
constexpr float kRound = 12582912.0f;

template <Source source> void encode8(const uint16_t *x, size_t n, Factors inverse, uint8_t *codes)
{
	for (size_t i = 0; i < n; i += hn::Lanes(F32())) {
		auto code =
			hn::MulAdd(load<source>(x + i), inverse.load(i), hn::Set(F32(), kRound));
		hn::StoreU(hn::TruncateTo(U8(), hn::BitCast(U32(), code)), U8(), codes + i);
	}
}

template <Source source> void decode8(const uint8_t *codes, size_t n, Factors scale, uint16_t *x)
{
	F32 df;
	for (size_t i = 0; i < n; i += hn::Lanes(df)) {
		auto code = hn::PromoteTo(
			I32(), hn::LoadU(I8(), reinterpret_cast<const int8_t *>(codes + i)));
		store<source>(hn::Mul(hn::ConvertTo(df, code), scale.load(i)), x + i);
	}
}

template <Source source>
void encode_fp8(const uint16_t *x, size_t n, Factors inverse, uint8_t *codes)
{
	F32 df;
	for (size_t i = 0; i < n; i += hn::Lanes(df)) {
		auto y = hn::Mul(load<source>(x + i), inverse.load(i));
		hn::StoreU(hn::DemoteTo(U8(), to_e4m3(y)), U8(), codes + i);
	}
}

template <Source source> void decode_fp8(const uint8_t *codes, size_t n, Factors scale, uint16_t *x)
{
	F32 df;
	auto factor = hn::Set(df, 256.0f);
	for (size_t i = 0; i < n; i += hn::Lanes(df)) {
		auto y = hn::Mul(from_e4m3(codes + i), factor);
		store<source>(hn::Mul(y, scale.load(i)), x + i);
	}
}

template <Source source>
HWY_INLINE hn::Vec<U32> code4(const uint16_t *x, size_t i, Factors inverse, Factors offset)
{
	/* x - offset could overflow. */
	auto factor = inverse.load(i);
	auto y = hn::MulSub(load<source>(x + i), factor, hn::Mul(offset.load(i), factor));
	return hn::BitCast(U32(), hn::Add(y, hn::Set(F32(), kRound)));
}

template <Source source>
void encode4(const uint16_t *x, size_t n, Factors inverse, Factors offset, uint8_t *codes)
{
	size_t half = n / 2;
	for (size_t i = 0; i < half; i += hn::Lanes(F32())) {
		auto low = code4<source>(x, i, inverse, offset);
		auto high = code4<source>(x, half + i, inverse, offset);
		auto pair = hn::Add(low, hn::ShiftLeft<4>(high));
		hn::StoreU(hn::TruncateTo(U8(), pair), U8(), codes + i);
	}
}

template <Source source>
void decode4(const uint8_t *codes, size_t n, Factors scale, Factors offset, uint16_t *x)
{
	F32 df;
	I32 di;
	size_t half = n / 2;
	for (size_t i = 0; i < half; i += hn::Lanes(df)) {
		auto pair = hn::PromoteTo(di, hn::LoadU(U8(), codes + i));
		auto low = hn::ConvertTo(df, hn::And(pair, hn::Set(di, 15)));
		auto high = hn::ConvertTo(df, hn::ShiftRight<4>(pair));
		store<source>(hn::MulAdd(low, scale.load(i), offset.load(i)), x + i);
		store<source>(hn::MulAdd(high, scale.load(half + i), offset.load(half + i)),
			      x + half + i);
	}
}

template <Source source>
void encode_row(Format format, const uint16_t *x, size_t n, Factors inverse, Factors offset,
		uint8_t *codes)
{
	if (format == Format::Int8)
		encode8<source>(x, n, inverse, codes);
	else if (format == Format::Fp8)
		encode_fp8<source>(x, n, inverse, codes);
	else
		encode4<source>(x, n, inverse, offset, codes);
}

template <Source source>
void decode_row(Format format, const uint8_t *codes, size_t n, Factors scale, Factors offset,
		uint16_t *x)
{
	if (format == Format::Int8)
		decode8<source>(codes, n, scale, x);
	else if (format == Format::Fp8)
		decode_fp8<source>(codes, n, scale, x);
	else
		decode4<source>(codes, n, scale, offset, x);
}

void encode(const Shape &s, const uint16_t *x, size_t tokens, const float *inverse,
	    const float *offset, uint32_t group_shift, const uint16_t *next, uint8_t *codes)
{
	size_t step = group_shift ? s.dim >> group_shift : 0;
	size_t row_bytes = s.format == Format::Int4 ? s.dim / 2 : s.dim;
	for (size_t t = 0; t < tokens; t++, x += s.dim, codes += row_bytes) {
		Factors i{inverse + t * step, group_shift}, o{offset + t * step, group_shift};
		for (size_t ahead = 0; next && ahead < s.dim; ahead += kLineElements)
			hwy::Prefetch(next + t * s.dim + ahead);
		if (s.source == Source::Fp16)
			encode_row<Source::Fp16>(s.format, x, s.dim, i, o, codes);
		else
			encode_row<Source::Bf16>(s.format, x, s.dim, i, o, codes);
	}
}

void decode(const Shape &s, const uint8_t *codes, const float *scale, const float *offset,
	    uint32_t group_shift, uint16_t *x)
{
	size_t step = group_shift ? s.dim >> group_shift : 0;
	size_t row_bytes = s.format == Format::Int4 ? s.dim / 2 : s.dim;
	for (size_t t = 0; t < s.tokens; t++) {
		Factors f{scale + t * step, group_shift}, o{offset + t * step, group_shift};
		if (s.source == Source::Fp16)
			decode_row<Source::Fp16>(s.format, codes + t * row_bytes, s.dim, f, o,
						 x + t * s.dim);
		else
			decode_row<Source::Bf16>(s.format, codes + t * row_bytes, s.dim, f, o,
						 x + t * s.dim);
	}
}

/* In double: squares of BF16 overflow a float. */
template <Source source>
ErrorStats compare_all(const uint16_t *exact, const uint16_t *decoded, size_t n)
{
	hn::ScalableTag<double> d;
	hn::Rebind<float, decltype(d)> df;
	auto signal = hn::Zero(d), noise = signal, dot = signal, energy = signal;
	for (size_t i = 0; i < n; i += hn::Lanes(d)) {
		auto x = hn::PromoteTo(d, load_as<source>(df, exact + i));
		auto y = hn::PromoteTo(d, load_as<source>(df, decoded + i));
		auto error = hn::Sub(x, y);
		signal = hn::MulAdd(x, x, signal);
		noise = hn::MulAdd(error, error, noise);
		dot = hn::MulAdd(x, y, dot);
		energy = hn::MulAdd(y, y, energy);
	}
	auto total = [&](auto v) { return hn::GetLane(hn::SumOfLanes(d, v)); };
	return {total(signal), total(noise), total(dot), total(energy)};
}

ErrorStats compare(Source source, const uint16_t *exact, const uint16_t *decoded, size_t n)
{
	return source == Source::Fp16 ? compare_all<Source::Fp16>(exact, decoded, n)
				      : compare_all<Source::Bf16>(exact, decoded, n);
}

const char *target()
{
	return hwy::TargetName(HWY_TARGET);
}

} // namespace HWY_NAMESPACE
} // namespace cxlkv::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cxlkv::codec {

HWY_EXPORT(fold);
HWY_EXPORT(ranges);
HWY_EXPORT(scales);
HWY_EXPORT(encode);
HWY_EXPORT(decode);
HWY_EXPORT(compare);
HWY_EXPORT(target);

const Rows &rows()
{
	static const Rows best = [] {
		hwy::GetChosenTarget().Update(hwy::SupportedTargets());
		return Rows{HWY_DYNAMIC_DISPATCH(fold),   HWY_DYNAMIC_DISPATCH(ranges),
			    HWY_DYNAMIC_DISPATCH(scales), HWY_DYNAMIC_DISPATCH(encode),
			    HWY_DYNAMIC_DISPATCH(decode), HWY_DYNAMIC_DISPATCH(compare)};
	}();
	return best;
}

const char *simd_target()
{
	return HWY_DYNAMIC_DISPATCH(target)();
}

} // namespace cxlkv::codec
#endif
