/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Codec throughput of one thread beside memcpy in the same run, in turns. Both
 * walk over memory much larger than the caches; bytes are counted once, on the
 * 16-bit side.
 */
#include "codec/codec.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <random>

using namespace cxlkv::codec;

namespace {

constexpr uint32_t kTokens = 128, kDim = 128; /* 64 KiB a block */
constexpr size_t kTotalBytes = 512u << 20;
constexpr int kRounds = 7;

double seconds(const std::function<void()> &work)
{
	auto start = std::chrono::steady_clock::now();
	work();
	return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

const char *name(Format format)
{
	return format == Format::Int8 ? "int8" : format == Format::Int4 ? "int4" : "fp8";
}

/* What the project asks of one thread, in parts of memcpy's speed; 0 = nothing. */
struct Goal {
	double encode, decode;
};

Goal goal(Format format)
{
	return format == Format::Int8   ? Goal{0.8, 0.8}
	       : format == Format::Int4 ? Goal{0.6, 0}
					: Goal{0, 0};
}

void judge(const char *what, Format format, double reached, double wanted)
{
	if (wanted > 0)
		fmt::print("{}: {} {} {:.2f} of memcpy, at least {}\n",
			   reached >= wanted ? "ok" : "missed", name(format), what, reached,
			   wanted);
}

} // namespace

int main()
{
	std::vector<std::byte> raw(kTotalBytes), copy(kTotalBytes), coded(kTotalBytes);
	auto *words = reinterpret_cast<uint16_t *>(raw.data());
	std::mt19937 random(1);
	double noise = 0;

	/* FP16 numbers between 1/16 and 2 of either sign. */
	for (size_t i = 0; i < kTotalBytes / 2; i++) {
		uint32_t r = static_cast<uint32_t>(random());
		words[i] = static_cast<uint16_t>((r & 0x83ff) | ((11 + (r >> 16) % 5) << 10));
	}
	fmt::print("blocks of {} tokens x {} channels, FP16, {}, {} MiB, best of {}\n", kTokens,
		   kDim, simd_target(), kTotalBytes >> 20, kRounds);
	for (Format format : {Format::Int8, Format::Fp8, Format::Int4}) {
		Shape shape{kTokens, kDim, Source::Fp16, format};
		Codec codec(shape);
		size_t nr = kTotalBytes / shape.raw_bytes(), small = shape.encoded_bytes(),
		       large = shape.raw_bytes();
		double copied = INFINITY, encoded = INFINITY, decoded = INFINITY,
		       compared = INFINITY;
		for (int round = 0; round < kRounds; round++) {
			copied = std::min(copied, seconds([&] {
						  for (size_t i = 0; i < nr; i++)
							  memcpy(copy.data() + i * large,
								 raw.data() + i * large, large);
					  }));
			encoded = std::min(
				encoded, seconds([&] {
					for (size_t i = 0; i < nr; i++)
						codec.encode({raw.data() + i * large, large},
							     {coded.data() + i * small, small});
				}));
			decoded = std::min(
				decoded, seconds([&] {
					for (size_t i = 0; i < nr; i++)
						codec.decode({coded.data() + i * small, small},
							     {copy.data() + i * large, large});
				}));
			/* As the daemon does after each encoding, for the error it reports. */
			compared = std::min(
				compared, seconds([&] {
					for (size_t i = 0; i < nr; i++)
						noise += codec.compare({raw.data() + i * large,
									large},
								       {copy.data() + i * large,
									large})
								 .noise;
				}));
		}
		double GB = static_cast<double>(kTotalBytes) / 1e9;
		fmt::print("{:<5} memcpy {:5.2f} GB/s   encode {:5.2f} GB/s, {:.2f} of it   decode "
			   "{:5.2f} GB/s, {:.2f} of it   compare {:5.2f} GB/s   "
			   "{:.2f} of the size\n",
			   name(format), GB / copied, GB / encoded, copied / encoded, GB / decoded,
			   copied / decoded, GB / compared,
			   static_cast<double>(small) / static_cast<double>(large));
		judge("encode", format, copied / encoded, goal(format).encode);
		judge("decode", format, copied / decoded, goal(format).decode);
	}
	/* The value is used, so that it is computed. */
	return noise > 0 ? 0 : 1;
}
