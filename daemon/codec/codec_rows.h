/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The SIMD loops of the codec, over 16-bit elements in rows whose length is a multiple of 32. */
#pragma once

#include "codec/codec.h"

namespace cxlkv::codec {

/*
 * Rows of `dim` channels. Scales: one a channel for all rows (group_shift 0), or one
 * for 2^group_shift channels of each row. Of symmetric formats (FP8, INT8) the end
 * of a range that is called high is the larger magnitude, and low is not used.
 */
struct Rows {
	/* The range of each channel over all rows of half a block. */
	void (*fold)(const Shape &shape, const uint16_t *x, int16_t *low, int16_t *high);
	/* The range of each of nr groups. */
	void (*ranges)(const Shape &shape, const uint16_t *x, size_t nr, uint32_t group_shift,
		       int16_t *low, int16_t *high);
	/* n scales, a multiple of 32; false where a range is not finite. */
	bool (*scales)(const Shape &shape, const int16_t *low, const int16_t *high, size_t n,
		       float *scale, float *inverse, float *offset);
	/* next: as many rows that are needed soon, fetched into the cache meanwhile, or null. */
	void (*encode)(const Shape &shape, const uint16_t *x, size_t tokens, const float *inverse,
		       const float *offset, uint32_t group_shift, const uint16_t *next,
		       uint8_t *codes);
	void (*decode)(const Shape &shape, const uint8_t *codes, const float *scale,
		       const float *offset, uint32_t group_shift, uint16_t *x);
	/* n elements, a multiple of 32. */
	ErrorStats (*compare)(Source source, const uint16_t *exact, const uint16_t *decoded,
			      size_t n);
};

/* Those of the best instruction set that this CPU has. */
const Rows &rows();

} // namespace cxlkv::codec
