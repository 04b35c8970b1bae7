/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The arithmetic of the decoder, for the best instruction set of the CPU it
 * runs on. The result for one row never depends on how many rows are computed
 * together: KV recomputed in one prefill has the same bytes as KV that was
 * decoded token by token.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cxlkv::engine {

enum class KvType : uint8_t { F16, F32 };

constexpr size_t elem_bytes(KvType type)
{
	return type == KvType::F16 ? 2 : 4;
}

/* Head dimensions are multiples of this; rows of activations are padded to panel_floats. */
constexpr uint32_t vector_floats = 16;
constexpr uint32_t panel_floats = 32;

/* A weight matrix, repacked in panels of panel_floats outputs: [panel][in][panel_floats]. */
class Matrix {
public:
	Matrix() = default;
	/* From row-major [out][in]. */
	Matrix(const float *rows, uint32_t out, uint32_t in);

	[[nodiscard]] uint32_t in() const { return in_; }
	/* Floats from one row of outputs to the next, out rounded up; the excess is zero. */
	[[nodiscard]] uint32_t stride() const { return nr_panels_ * panel_floats; }
	[[nodiscard]] uint32_t nr_panels() const { return nr_panels_; }
	[[nodiscard]] const float *panel(uint32_t i) const
	{
		return packed_.data() + size_t{i} * in_ * panel_floats;
	}

private:
	uint32_t in_ = 0, nr_panels_ = 0;
	std::vector<float> packed_;
};

/* out[r][0..w.stride()) = w x[r]; x has x_stride floats a row. */
void matmul(const Matrix &w, const float *x, size_t x_stride, size_t nr_rows, float *out);

/* gate = silu(gate) * up */
void silu_mul(float *gate, const float *up, size_t n);

/* out[j] = q . k[j] * scale for nr keys of dim elements. */
void key_scores(KvType type, const void *k, size_t nr, size_t dim, const float *q, float scale,
		float *out);

/* In place; n >= 1. */
void softmax(float *x, size_t n);

/* acc += sum over j of p[j] * v[j] */
void add_values(KvType type, const void *v, size_t nr, size_t dim, const float *p, float *acc);

/* n floats as elements of a block, rounded to nearest even; n is a multiple of vector_floats. */
void store_elements(KvType type, const float *x, size_t n, void *out);

/* Name of the instruction set in use. */
const char *kernel_target();

} // namespace cxlkv::engine
