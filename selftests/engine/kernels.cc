/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Highway compiles this file once for each instruction set and picks one at run time. */
#include "engine/kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels.cc"
#include <hwy/foreach_target.h>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace cxlkv::engine::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::CappedTag<float, vector_floats>;
using Vec = hn::Vec<Floats>;

/* Loads N elements of a KV block as floats. */
template <KvType type> HWY_INLINE Vec load_elements(Floats d, const void *base, size_t at)
{
	if constexpr (type == KvType::F32) {
		return hn::LoadU(d, static_cast<const float *>(base) + at);
	} else {
		const hn::Rebind<hwy::float16_t, Floats> half;
		return hn::PromoteTo(
			d, hn::LoadU(half, static_cast<const hwy::float16_t *>(base) + at));
	}
}

/* kRows rows times two vectors of outputs: each sum runs over k in order, whatever kRows is. */
template <size_t kRows>
HWY_INLINE void tile(const float *HWY_RESTRICT w, size_t in, const float *HWY_RESTRICT x,
		     size_t x_stride, float *HWY_RESTRICT out, size_t out_stride)
{
	const Floats d;
	const size_t lanes = hn::Lanes(d);
	Vec sum0[kRows], sum1[kRows];

	for (size_t r = 0; r < kRows; r++)
		sum0[r] = sum1[r] = hn::Zero(d);
	for (size_t k = 0; k < in; k++) {
		const Vec w0 = hn::LoadU(d, w + k * panel_floats);
		const Vec w1 = hn::LoadU(d, w + k * panel_floats + lanes);
		for (size_t r = 0; r < kRows; r++) {
			const Vec xk = hn::Set(d, x[r * x_stride + k]);
			sum0[r] = hn::MulAdd(w0, xk, sum0[r]);
			sum1[r] = hn::MulAdd(w1, xk, sum1[r]);
		}
	}
	for (size_t r = 0; r < kRows; r++) {
		hn::StoreU(sum0[r], d, out + r * out_stride);
		hn::StoreU(sum1[r], d, out + r * out_stride + lanes);
	}
}

void matmul_target(const Matrix &w, const float *x, size_t x_stride, size_t nr_rows, float *out)
{
	const size_t step = 2 * hn::Lanes(Floats()), out_stride = w.stride();

	for (uint32_t p = 0; p < w.nr_panels(); p++)
		for (size_t c = 0; c < panel_floats; c += step) {
			const float *weights = w.panel(p) + c;
			float *o = out + p * panel_floats + c;
			size_t r = 0;
			for (; r + 4 <= nr_rows; r += 4)
				tile<4>(weights, w.in(), x + r * x_stride, x_stride,
					o + r * out_stride, out_stride);
			for (; r < nr_rows; r++)
				tile<1>(weights, w.in(), x + r * x_stride, x_stride,
					o + r * out_stride, out_stride);
		}
}

/* n is padded to a multiple of the vector by the caller's stride. */
void silu_mul_target(float *gate, const float *up, size_t n)
{
	const Floats d;
	const Vec one = hn::Set(d, 1.0f);

	for (size_t i = 0; i < n; i += hn::Lanes(d)) {
		const Vec g = hn::LoadU(d, gate + i);
		const Vec silu = hn::Div(g, hn::Add(one, hn::Exp(d, hn::Neg(g))));
		hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, gate + i);
	}
}

template <KvType type>
void key_scores_of(const void *k, size_t nr, size_t dim, const float *q, float scale, float *out)
{
	const Floats d;

	for (size_t j = 0; j < nr; j++) {
		Vec sum = hn::Zero(d);
		for (size_t i = 0; i < dim; i += hn::Lanes(d))
			sum = hn::MulAdd(load_elements<type>(d, k, j * dim + i),
					 hn::LoadU(d, q + i), sum);
		out[j] = hn::GetLane(hn::SumOfLanes(d, sum)) * scale;
	}
}

void key_scores_target(KvType type, const void *k, size_t nr, size_t dim, const float *q,
		       float scale, float *out)
{
	if (type == KvType::F16)
		key_scores_of<KvType::F16>(k, nr, dim, q, scale, out);
	else
		key_scores_of<KvType::F32>(k, nr, dim, q, scale, out);
}

void softmax_target(float *x, size_t n)
{
	const Floats d;
	const size_t lanes = hn::Lanes(d), whole = n / lanes * lanes;
	const float max = *std::max_element(x, x + n);
	const Vec max_v = hn::Set(d, max);
	Vec sum_v = hn::Zero(d);

	for (size_t i = 0; i < whole; i += lanes) {
		const Vec e = hn::Exp(d, hn::Sub(hn::LoadU(d, x + i), max_v));
		hn::StoreU(e, d, x + i);
		sum_v = hn::Add(sum_v, e);
	}
	float sum = hn::GetLane(hn::SumOfLanes(d, sum_v));
	for (size_t i = whole; i < n; i++) {
		x[i] = hn::GetLane(hn::Exp(d, hn::Set(d, x[i] - max)));
		sum += x[i];
	}
	const float inverse = 1.0f / sum;
	for (size_t i = 0; i < n; i++)
		x[i] *= inverse;
}

template <KvType type>
void add_values_of(const void *v, size_t nr, size_t dim, const float *p, float *acc)
{
	const Floats d;

	for (size_t i = 0; i < dim; i += hn::Lanes(d)) {
		Vec sum = hn::LoadU(d, acc + i);
		for (size_t j = 0; j < nr; j++)
			sum = hn::MulAdd(load_elements<type>(d, v, j * dim + i), hn::Set(d, p[j]),
					 sum);
		hn::StoreU(sum, d, acc + i);
	}
}

void add_values_target(KvType type, const void *v, size_t nr, size_t dim, const float *p,
		       float *acc)
{
	if (type == KvType::F16)
		add_values_of<KvType::F16>(v, nr, dim, p, acc);
	else
		add_values_of<KvType::F32>(v, nr, dim, p, acc);
}

void store_half_target(const float *x, size_t n, void *out)
{
	const Floats d;
	const hn::Rebind<hwy::float16_t, Floats> half;

	for (size_t i = 0; i < n; i += hn::Lanes(d))
		hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, x + i)), half,
			   static_cast<hwy::float16_t *>(out) + i);
}

const char *name_target()
{
	return hwy::TargetName(HWY_TARGET);
}

} // namespace cxlkv::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cxlkv::engine {

HWY_EXPORT(matmul_target);
HWY_EXPORT(silu_mul_target);
HWY_EXPORT(key_scores_target);
HWY_EXPORT(softmax_target);
HWY_EXPORT(add_values_target);
HWY_EXPORT(store_half_target);
HWY_EXPORT(name_target);

Matrix::Matrix(const float *rows, uint32_t out, uint32_t in)
    : in_(in), nr_panels_((out + panel_floats - 1) / panel_floats),
      packed_(size_t{nr_panels_} * in * panel_floats)
{
	for (size_t o = 0; o < out; o++)
		for (size_t k = 0; k < in; k++)
			packed_[(o / panel_floats * in + k) * panel_floats + o % panel_floats] =
				rows[o * in + k];
}

void matmul(const Matrix &w, const float *x, size_t x_stride, size_t nr_rows, float *out)
{
	HWY_DYNAMIC_DISPATCH(matmul_target)(w, x, x_stride, nr_rows, out);
}

void silu_mul(float *gate, const float *up, size_t n)
{
	HWY_DYNAMIC_DISPATCH(silu_mul_target)(gate, up, n);
}

void key_scores(KvType type, const void *k, size_t nr, size_t dim, const float *q, float scale,
		float *out)
{
	HWY_DYNAMIC_DISPATCH(key_scores_target)(type, k, nr, dim, q, scale, out);
}

void softmax(float *x, size_t n)
{
	HWY_DYNAMIC_DISPATCH(softmax_target)(x, n);
}

void add_values(KvType type, const void *v, size_t nr, size_t dim, const float *p, float *acc)
{
	HWY_DYNAMIC_DISPATCH(add_values_target)(type, v, nr, dim, p, acc);
}

void store_elements(KvType type, const float *x, size_t n, void *out)
{
	if (type == KvType::F32)
		std::copy_n(x, n, static_cast<float *>(out));
	else
		HWY_DYNAMIC_DISPATCH(store_half_target)(x, n, out);
}

const char *kernel_target()
{
	return HWY_DYNAMIC_DISPATCH(name_target)();
}

} // namespace cxlkv::engine
#endif /* HWY_ONCE */
