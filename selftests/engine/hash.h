/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* To tell blocks, texts and weights apart, not against an adversary; not the daemon's CRC32C, on
 * purpose. */
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cxlkv::engine {

/* Of whole words: up to seven bytes at the end are left out. */
inline uint64_t hash(const void *data, size_t bytes, uint64_t seed = 0)
{
	const auto *at = static_cast<const unsigned char *>(data);
	uint64_t h = bytes ^ seed;

	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word;
		memcpy(&word, at + i, 8);
		h = std::rotl((h ^ word) * 0x9E3779B97F4A7C15, 29);
	}
	return h ^ h >> 32;
}

} // namespace cxlkv::engine
