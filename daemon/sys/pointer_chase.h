/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Loads of which each needs what the one before brought: latency, not bandwidth. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace cxlkv {

constexpr size_t kLine = 64; /* bytes of a cache line */

inline uint32_t &next_line(std::byte *at, uint32_t line)
{
	return *reinterpret_cast<uint32_t *>(at + size_t{line} * kLine);
}

/* One cycle through all lines in random order (Sattolo's algorithm). */
inline void link_lines(std::byte *at, uint64_t bytes)
{
	const auto nr = static_cast<uint32_t>(bytes / kLine);
	std::vector<uint32_t> order(nr);
	std::minstd_rand random(1);

	for (uint32_t i = 0; i < nr; i++)
		order[i] = i;
	for (uint32_t i = nr - 1; i > 0; i--)
		std::swap(order[i], order[random() % i]);
	for (uint32_t i = 0; i < nr; i++)
		next_line(at, i) = order[i];
}

/* So many loads from that line on; the line after them. */
inline uint32_t follow_lines(std::byte *at, uint32_t line, size_t nr)
{
	for (; nr; nr--)
		line = const_cast<volatile uint32_t &>(next_line(at, line));
	return line;
}

} // namespace cxlkv
