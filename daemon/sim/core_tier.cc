/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/core_tier.h"

namespace cxlkv::sim {

CoreTier::CoreTier(const Geometry &geometry, const PolicyOptions &options, uint64_t capacity_blocks)
    : geometry_(geometry), policy_(options), capacity_(capacity_blocks)
{
	geometry_.head_dim = geometry_.elem_bytes = 1;
	geometry_.block_bytes = block_bytes;
	geometry_.layer_window.assign(geometry_.nr_layers, 0);
	resident_.resize(geometry_.nr_blocks());
	policy_.add_arena(0, geometry_);
}

void CoreTier::position(uint32_t slot, uint32_t token)
{
	cxl_kv_hint hint = {};
	hint.kind = CXL_KV_HINT_POSITION;
	hint.slot = slot;
	hint.position = token;
	policy_.hint(0, hint, now_ms_);
}

void CoreTier::move(uint32_t first, uint32_t nr, Where where)
{
	policy_.moved({0, first, nr}, where, now_ms_);
	for (uint32_t b = first; b < first + nr; b++) {
		nr_resident_ += (where == Where::Hot) - resident_[b];
		resident_[b] = where == Where::Hot;
	}
}

void CoreTier::read(uint32_t block, float mass)
{
	if (!resident_[block])
		move(block, 1, Where::Hot);
	cxl_kv_hint hint = {};
	hint.kind = CXL_KV_HINT_SCORE;
	hint.slot = geometry_.slot_of(block);
	hint.head = geometry_.head_of(block);
	hint.block = geometry_.block_of(block);
	hint.nr_blocks = 1;
	hint.score = static_cast<uint16_t>(mass * CXL_KV_SCORE_ONE);
	policy_.hint(0, hint, now_ms_);
}

void CoreTier::plan()
{
	const uint64_t limit = capacity_ * block_bytes;
	PlanInput input;
	now_ms_ += step_ms;
	input.now_ms = now_ms_;
	input.hot = {nr_resident_ * block_bytes, limit, limit, limit};
	input.move_budget_bytes = input.spill_budget_bytes = UINT64_MAX;
	for (const Order &order : policy_.plan(input))
		move(order.extent.first, order.extent.nr,
		     order.action == Action::Prefetch || order.action == Action::Promote
			     ? Where::Hot
			     : Where::Cold);
}

PolicyOptions sim_options(const char *preset)
{
	PolicyOptions options;
	options.preset = preset;
	options.access_mass = 0;
	options.anchor_blocks = 0;
	options.prefetch_window_tokens = options.prefetch_layers = 0;
	return options;
}

} // namespace cxlkv::sim
