/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Single blocks in order of preference become extents: adjacent ones are one I/O. */
#pragma once

#include "core/types.h"

#include <cstdint>
#include <vector>

namespace cxlkv {

struct Pick {
	uint32_t arena;
	uint32_t block;
	float rank; /* the lowest is ordered first */
};

/* Largest extent in blocks, and blocks of one slot: an extent stays inside both. */
struct ExtentLimits {
	uint32_t max_blocks, blocks_per_slot;
};

/* Appends to orders; picks of one arena, each block once. The best rank of its blocks ranks an
 * extent. */
void coalesce(Action action, std::vector<Pick> picks, const ExtentLimits &limits,
	      std::vector<Order> &orders);

} // namespace cxlkv
