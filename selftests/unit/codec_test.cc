/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The codec: how near what comes back is, and the values that break naive converters. */
#include "codec/codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <random>

using namespace cxlkv::codec;

namespace {

/* Scalar reference conversions, independent of the code under test. */
uint16_t to_fp16(float value)
{
	uint32_t bits = std::bit_cast<uint32_t>(value);
	uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
	float magnitude = std::fabs(value);
	if (std::isnan(value))
		return sign | 0x7e00;
	if (magnitude >= 65520)
		return sign | 0x7c00;
	if (magnitude < 0x1p-14f)
		return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
	int exponent;
	float fraction = std::frexp(magnitude, &exponent); /* 0.5 .. 1 */
	auto mantissa = static_cast<uint32_t>(std::nearbyint(std::ldexp(fraction, 11)));
	return static_cast<uint16_t>(sign |
				     (((exponent + 14) << 10) + static_cast<int>(mantissa) - 1024));
}

float from_fp16(uint16_t bits)
{
	int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
	float value = exponent ? std::ldexp(1024.0f + static_cast<float>(mantissa), exponent - 25)
			       : std::ldexp(static_cast<float>(mantissa), -24);
	return bits & 0x8000 ? -value : value;
}

uint16_t to_bits(Source source, float value)
{
	if (source == Source::Fp16)
		return to_fp16(value);
	return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

float from_bits(Source source, uint16_t bits)
{
	return source == Source::Fp16 ? from_fp16(bits)
				      : std::bit_cast<float>(uint32_t{bits} << 16);
}

using Values = std::vector<uint16_t>;

struct Trip {
	bool encoded = false;
	Values out;
	ErrorStats error;
};

Trip round_trip(const Shape &shape, const Values &in)
{
	Codec codec(shape);
	std::vector<std::byte> coded(shape.encoded_bytes());
	Trip trip;

	trip.out.resize(in.size());
	trip.encoded = codec.encode(std::as_bytes(std::span(in)), coded);
	if (!trip.encoded)
		return trip;
	codec.decode(coded, std::as_writable_bytes(std::span(trip.out)));
	trip.error =
		codec.compare(std::as_bytes(std::span(in)), std::as_bytes(std::span(trip.out)));
	return trip;
}

Values values(const Shape &shape, const std::function<float(uint32_t)> &value)
{
	Values out(shape.raw_bytes() / 2);
	for (uint32_t i = 0; i < out.size(); i++)
		out[i] = to_bits(shape.source, value(i));
	return out;
}

class Codecs : public testing::TestWithParam<std::tuple<Source, Format>> {
protected:
	Shape shape(uint32_t tokens = 16, uint32_t dim = 128)
	{
		return {tokens, dim, std::get<0>(GetParam()), std::get<1>(GetParam())};
	}
	[[nodiscard]] double allowed_nmse() const
	{
		switch (std::get<1>(GetParam())) {
		case Format::Int8:
			return 1e-4;
		case Format::Fp8:
			return 1e-3;
		case Format::Int4:
			break;
		}
		return 2e-2;
	}
};

} // namespace

TEST_P(Codecs, NormalValuesComeBackNear)
{
	std::mt19937 random(1);
	std::normal_distribution<float> normal;
	for (uint32_t dim : {32u, 64u, 96u, 128u, 256u}) {
		Shape s = shape(24, dim);
		Trip trip = round_trip(s, values(s, [&](uint32_t) { return normal(random); }));
		ASSERT_TRUE(trip.encoded);
		ASSERT_LE(trip.error.nmse(), allowed_nmse()) << dim;
		ASSERT_GE(trip.error.cosine(), 1 - allowed_nmse()) << dim;
		ASSERT_LT(s.encoded_bytes(), s.raw_bytes());
	}
}

TEST_P(Codecs, ChannelWithOutliersDoesNotSpoilTheOthers)
{
	std::mt19937 random(2);
	std::normal_distribution<float> normal;
	Shape s = shape();
	Values in =
		values(s, [&](uint32_t i) { return normal(random) * (i % s.dim == 5 ? 1000 : 1); });
	Trip trip = round_trip(s, in);
	double signal = 0, noise = 0;
	for (uint32_t i = 0; i < s.tokens * s.dim; i++) { /* keys */
		if (i % s.dim == 5)
			continue;
		double a = from_bits(s.source, in[i]), b = from_bits(s.source, trip.out[i]);
		signal += a * a;
		noise += (a - b) * (a - b);
	}
	EXPECT_LE(noise / signal, allowed_nmse());
}

TEST_P(Codecs, ErrorIsBoundedByHalfAStep)
{
	std::mt19937 random(3);
	std::uniform_real_distribution<float> uniform(-3, 3);
	Shape s = shape();
	Values in = values(s, [&](uint32_t) { return uniform(random); });
	Trip trip = round_trip(s, in);
	/* A step: of the range for integers, of the value (3 bits of mantissa) for FP8. Plus the
	 * source's own. */
	for (uint32_t i = 0; i < in.size(); i++) {
		float a = from_bits(s.source, in[i]), b = from_bits(s.source, trip.out[i]);
		float step = s.format == Format::Int8   ? 3.0f / 127
			     : s.format == Format::Int4 ? 6.0f / 15
							: std::fabs(a) / 8 + 1e-2f;
		ASSERT_LE(std::fabs(a - b), step / 2 + std::fabs(b) / 128) << i;
	}
}

TEST_P(Codecs, ReportedErrorIsThatOfTheValues)
{
	std::mt19937 random(4);
	std::normal_distribution<float> normal;
	/* Squares of the largest BF16 numbers are no floats. */
	float size = std::get<0>(GetParam()) == Source::Bf16 ? 1e30f : 1;
	for (uint32_t dim : {32u, 96u, 128u}) {
		Shape s = shape(19, dim);
		Values in = values(s, [&](uint32_t) { return normal(random) * size; });
		Trip trip = round_trip(s, in);
		ErrorStats want;
		for (size_t i = 0; i < in.size(); i++) {
			double x = from_bits(s.source, in[i]), y = from_bits(s.source, trip.out[i]);
			want.add({x * x, (x - y) * (x - y), x * y, y * y});
		}
		EXPECT_NEAR(trip.error.nmse() / want.nmse(), 1, 1e-9);
		EXPECT_NEAR(trip.error.cosine(), want.cosine(), 1e-12);
		EXPECT_NEAR(trip.error.signal / want.signal, 1, 1e-9);
	}
}

TEST_P(Codecs, ZeroesStayZero)
{
	Shape s = shape();
	Trip trip = round_trip(s, values(s, [](uint32_t) { return 0.0f; }));
	ASSERT_TRUE(trip.encoded);
	for (uint16_t one : trip.out)
		ASSERT_EQ(from_bits(s.source, one), 0.0f);
}

TEST_P(Codecs, ConstantGroupsComeBackExact)
{
	Shape s = shape();
	Trip trip = round_trip(s, values(s, [](uint32_t) { return 1.75f; }));
	ASSERT_TRUE(trip.encoded);
	for (uint16_t one : trip.out)
		ASSERT_EQ(from_bits(s.source, one), 1.75f);
}

TEST_P(Codecs, NotANumberAndInfinityAreRefused)
{
	Shape s = shape();
	for (float bad : {NAN, INFINITY, -INFINITY}) {
		for (uint32_t at :
		     {0u, 77u, s.tokens * s.dim - 1, s.tokens * s.dim, 2 * s.tokens * s.dim - 1}) {
			Trip trip = round_trip(
				s, values(s, [&](uint32_t i) { return i == at ? bad : 1.0f; }));
			ASSERT_FALSE(trip.encoded) << bad << " at " << at;
		}
	}
}

TEST_P(Codecs, LargestValuesDoNotOverflow)
{
	Shape s = shape();
	uint16_t largest = s.source == Source::Fp16 ? 0x7bff : 0x7f7f;
	Values in(s.raw_bytes() / 2);
	for (uint32_t i = 0; i < in.size(); i++)
		in[i] = static_cast<uint16_t>(largest | (i % 2 ? 0x8000 : 0));
	Trip trip = round_trip(s, in);
	ASSERT_TRUE(trip.encoded);
	for (uint32_t i = 0; i < in.size(); i++) {
		float a = from_bits(s.source, in[i]), b = from_bits(s.source, trip.out[i]);
		ASSERT_TRUE(std::isfinite(b)) << i;
		ASSERT_NEAR(b / a, 1, 0.01) << i;
	}
}

TEST_P(Codecs, SubnormalsStaySmall)
{
	Shape s = shape();
	Values in(s.raw_bytes() / 2);
	for (uint32_t i = 0; i < in.size(); i++)
		in[i] = static_cast<uint16_t>(i % 7 | (i % 3 ? 0x8000 : 0));
	Trip trip = round_trip(s, in);
	ASSERT_TRUE(trip.encoded);
	float limit = from_bits(s.source, 7);
	for (uint16_t one : trip.out)
		ASSERT_LE(std::fabs(from_bits(s.source, one)), limit);
}

TEST_P(Codecs, AnyBytesDecode)
{
	Shape s = shape();
	Codec codec(s);
	std::mt19937_64 random(4);
	std::vector<std::byte> noise(s.encoded_bytes());
	Values out(s.raw_bytes() / 2);
	for (std::byte &one : noise)
		one = static_cast<std::byte>(random());
	codec.decode(noise, std::as_writable_bytes(std::span(out)));
}

INSTANTIATE_TEST_SUITE_P(All, Codecs,
			 testing::Combine(testing::Values(Source::Fp16, Source::Bf16),
					  testing::Values(Format::Fp8, Format::Int8,
							  Format::Int4)));

TEST(CodecFp8, EveryCodeIsAFixedPoint)
{
	/* All 127 magnitudes of E4M3 as they stand in its definition, with 448 present so that the
	 * scale is 1. */
	Shape s{16, 128, Source::Fp16, Format::Fp8};
	Values in(s.raw_bytes() / 2);
	for (uint32_t i = 0; i < in.size(); i++) {
		uint32_t code = (i / s.dim * 8 + i % s.dim / 16) % 127;
		int exponent = static_cast<int>(code >> 3);
		float value =
			exponent ? std::ldexp(1 + static_cast<float>(code & 7) / 8, exponent - 7)
				 : std::ldexp(static_cast<float>(code & 7), -9);
		in[i] = to_fp16(i % 2 ? -value : value);
	}
	for (uint32_t i = 0; i < s.dim;
	     i++) { /* a row of keys, and a channel of each group of values */
		in[i] = to_fp16(448);
		in[(s.tokens + i % s.tokens) * s.dim + i / 64 * 64] = to_fp16(448);
	}
	Trip trip = round_trip(s, in);
	ASSERT_TRUE(trip.encoded);
	EXPECT_EQ(trip.out, in);
}

TEST(CodecShape, BadShapesAreNamed)
{
	EXPECT_EQ(check_shape({16, 128, Source::Fp16, Format::Int4}), "");
	EXPECT_NE(check_shape({16, 100, Source::Fp16, Format::Int4}), "");
	EXPECT_NE(check_shape({0, 128, Source::Fp16, Format::Int4}), "");
	EXPECT_NE(check_shape({16, 1u << 30, Source::Fp16, Format::Int4}), "");
}
