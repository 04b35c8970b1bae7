/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compiled once for each instruction set that Highway knows; score_run() picks at run time. */
#include "core/score_run.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/score_run.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace cxlkv {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::Rebind<int32_t, F32>;
using U32 = hn::Rebind<uint32_t, F32>;
using Vec = hn::Vec<F32>;
using Ages = hn::Vec<U32>;

/*
 * (1 - alpha)^steps, and the same of at least one step as Ema::update() has it.
 * Neighbours mostly were scored together.
 */
HWY_INLINE void decay_of(const Ema &ema, Ages steps, Vec &since, Vec &update)
{
	uint32_t first = hn::GetLane(steps);
	if (HWY_LIKELY(hn::AllTrue(U32(), hn::Eq(steps, hn::Set(U32(), first))))) {
		since = hn::Set(F32(), ema.decay(first));
		update = hn::Set(F32(), ema.decay(first ? first : 1));
		return;
	}
	/* So many steps leave nothing of any score, and fit the sign. */
	auto capped = hn::BitCast(I32(), hn::Min(steps, hn::Set(U32(), 1u << 30)));
	auto some = hn::Exp(F32(),
			    hn::Mul(hn::Set(F32(), ema.log_keep()), hn::ConvertTo(F32(), capped)));
	auto none = hn::RebindMask(F32(), hn::Eq(steps, hn::Zero(U32())));
	since = hn::IfThenElse(none, hn::Set(F32(), 1), some);
	update = hn::IfThenElse(none, hn::Set(F32(), ema.decay(1)), some);
}

/* nr is a multiple of the lanes. */
RunScored run(float *ema, uint32_t *scored, const BlockState *state, size_t nr, const Ema &rule,
	      uint32_t now, float score, float promote_score)
{
	F32 f;
	U32 u;
	const uint32_t *words = &state->accessed;
	const auto nows = hn::Set(u, now);
	const auto added = hn::Set(f, rule.alpha() * score);
	auto hot = hn::Set(u, static_cast<uint32_t>(Where::Hot));
	auto warm = hn::Set(u, static_cast<uint32_t>(Where::Warm));
	auto grown = hn::Zero(f);
	auto best_warm = hn::Zero(f);
	auto known = hn::Zero(u); /* steps that the decay is of */
	auto since = hn::Set(f, 1), update = hn::Set(f, rule.decay(1));

	for (size_t i = 0; i < nr; i += hn::Lanes(f)) {
		Ages accessed, word;
		hn::LoadInterleaved2(u, words + 2 * i, accessed, word);
		auto where = hn::And(word, hn::Set(u, BlockTable::where_mask));
		auto is_warm = hn::RebindMask(f, hn::Eq(where, warm));
		auto resident = hn::Or(hn::RebindMask(f, hn::Eq(where, hot)), is_warm);
		auto made = hn::Ne(where, hn::Zero(u));
		auto when = hn::LoadU(u, scored + i);
		auto old = hn::LoadU(f, ema + i);
		auto steps = hn::Sub(nows, when);
		if (!hn::AllTrue(u, hn::Eq(steps, known))) {
			known = steps;
			decay_of(rule, steps, since, update);
		}
		auto fresh = hn::MulAdd(update, old, added);
		auto more = hn::NegMulAdd(since, old, fresh);
		grown = hn::Add(grown, hn::IfThenElseZero(resident, more));
		best_warm = hn::Max(best_warm, hn::IfThenElseZero(is_warm, fresh));
		hn::StoreU(hn::IfThenElse(hn::RebindMask(f, made), fresh, old), f, ema + i);
		hn::StoreU(hn::IfThenElse(made, nows, when), u, scored + i);
	}
	return {hn::GetLane(hn::SumOfLanes(f, grown)),
		hn::GetLane(hn::MaxOfLanes(f, best_warm)) >= promote_score};
}

size_t lanes()
{
	return hn::Lanes(F32());
}

} // namespace HWY_NAMESPACE
} // namespace cxlkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cxlkv {

namespace {

HWY_EXPORT(run);
HWY_EXPORT(lanes);

struct Best {
	decltype(&HWY_STATIC_DISPATCH(run)) run;
	size_t lanes;
};

const Best &best()
{
	static const Best of_this_cpu = [] {
		hwy::GetChosenTarget().Update(hwy::SupportedTargets());
		return Best{HWY_DYNAMIC_DISPATCH(run), HWY_DYNAMIC_DISPATCH(lanes)()};
	}();
	return of_this_cpu;
}

void score_one(BlockTable &table, uint32_t block, const Ema &ema, uint32_t now, float score,
	       float promote_score, RunScored &sum)
{
	Where where = table.where(block);
	if (where == Where::Empty)
		return;
	uint32_t steps = now - table.scored[block];
	float old = table.ema[block], fresh = ema.update(old, steps, score);
	if (where == Where::Hot || where == Where::Warm)
		sum.resident += fresh - ema.decay(steps) * old;
	sum.promotable |= where == Where::Warm && fresh >= promote_score;
	table.ema[block] = fresh;
	table.scored[block] = now;
}

} // namespace

RunScored score_run(BlockTable &table, uint32_t first, uint32_t nr, const Ema &ema, uint32_t now,
		    float score, float promote_score)
{
	/* In pieces, so that a float sums few enough. */
	constexpr uint32_t piece = 1024;
	RunScored sum;
	uint32_t end = first + nr, in_vectors = nr / best().lanes * best().lanes;
	for (uint32_t b = first; b < first + in_vectors; b += piece) {
		uint32_t n = std::min(piece, first + in_vectors - b);
		RunScored part = best().run(&table.ema[b], &table.scored[b], &table.state[b], n,
					    ema, now, score, promote_score);
		sum.resident += part.resident;
		sum.promotable |= part.promotable;
	}
	for (uint32_t b = first + in_vectors; b < end; b++)
		score_one(table, b, ema, now, score, promote_score, sum);
	return sum;
}

} // namespace cxlkv
#endif
