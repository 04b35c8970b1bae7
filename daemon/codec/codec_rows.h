/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The SIMD loops of the codec, over 16-bit elements in rows whose length is a multiple of 32. */
#pragma once

#include "codec/codec.h"

namespace cxlkv::codec {

/*
 * Half a block: `tokens` rows of `dim` channels. Scales: one a channel for all rows
 * (group_shift 0), or one for 2^group_shift channels of each row.
 */
struct Rows {
	/* The range of each channel over all rows. */
	void (*fold)(const uint16_t *x, size_t tokens, size_t dim, int16_t *low, int16_t *high);
	/* The range of each group of each row. */
	void (*ranges)(const uint16_t *x, size_t tokens, size_t dim, uint32_t group_shift,
		       int16_t *low, int16_t *high);
	/* n scales, a multiple of 32; false where a range is not finite. */
	bool (*scales)(const Shape &shape, const int16_t *low, const int16_t *high, size_t n,
		       float *scale, float *inverse, float *offset);
	void (*encode)(const Shape &shape, const uint16_t *x, const float *inverse,
		       const float *offset, uint32_t group_shift, uint8_t *codes);
	void (*decode)(const Shape &shape, const uint8_t *codes, const float *scale,
		       const float *offset, uint32_t group_shift, uint16_t *x);
};

/* Those of the best instruction set that this CPU has. */
const Rows &rows();

} // namespace cxlkv::codec
