/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/att_core.h"

namespace cxlkv::sim {

namespace {

constexpr uint32_t block_bytes = 4096; /* any will do */
/* Long enough that no move is too fresh, and no refusal is remembered. */
constexpr uint64_t step_ms = 1000;

class Replay {
public:
	Replay(const AttTrace &trace, const PolicyOptions &options, const Access &access,
	       double budget)
	    : trace_(trace), access_(access), policy_(options),
	      budget_(uint64_t{budget_blocks(trace, budget)} * trace.layers * trace.kv_heads),
	      resident_(size_t{trace.layers} * trace.kv_heads * trace.blocks)
	{
		geometry_.nr_slots = 1;
		geometry_.nr_layers = trace.layers;
		geometry_.nr_kv_heads = trace.kv_heads;
		geometry_.head_dim = geometry_.elem_bytes = 1;
		geometry_.tokens_per_block = trace.tokens_per_block;
		geometry_.tokens_per_slot = trace.blocks * trace.tokens_per_block;
		geometry_.block_bytes = block_bytes;
		geometry_.layer_window.assign(trace.layers, 0);
		policy_.add_arena(0, geometry_);
	}

	void run(AttHits &hits)
	{
		for (uint32_t t = 0; t < trace_.steps; t++)
			step(t, t >= trace_.steps / 2 ? &hits : nullptr);
	}

private:
	void step(uint32_t t, AttHits *hits)
	{
		now_ms_ += step_ms;
		cxl_kv_hint hint = {};
		hint.kind = CXL_KV_HINT_POSITION;
		hint.position = t;
		policy_.hint(0, hint, now_ms_);
		if (t % trace_.tokens_per_block == 0)
			for (uint32_t head = 0; head < geometry_.nr_heads(); head++)
				move(geometry_.block_index(0, head, trace_.current(t)), 1,
				     Where::Hot);
		for (uint32_t head = 0; head < geometry_.nr_heads(); head++)
			step_head(t, head, hits);
		plan();
	}

	void step_head(uint32_t t, uint32_t head, AttHits *hits)
	{
		uint32_t first = geometry_.block_index(0, head, 0);
		auto row = trace_.row(head / trace_.kv_heads, head % trace_.kv_heads, t);
		access_.pick(row, trace_.current(t) + 1, picked_);
		if (hits)
			count(row, first, *hits);
		for (uint32_t b : picked_) {
			if (!resident_[first + b])
				move(first + b, 1, Where::Hot);
			cxl_kv_hint hint = {};
			hint.kind = CXL_KV_HINT_SCORE;
			hint.head = head;
			hint.block = b;
			hint.nr_blocks = 1;
			hint.score =
				static_cast<uint16_t>(AttTrace::mass(row[b]) * CXL_KV_SCORE_ONE);
			policy_.hint(0, hint, now_ms_);
		}
	}

	void count(std::span<const uint8_t> row, uint32_t first, AttHits &hits) const
	{
		hits.nr_head_steps++;
		hits.nr_accesses += picked_.size();
		for (uint32_t b : picked_)
			(resident_[first + b] ? hits.nr_hits : hits.nr_fetched)++;
		for (uint32_t b = 0; b < row.size(); b++) {
			double mass = AttTrace::mass(row[b]);
			hits.mass += mass;
			hits.mass_resident += resident_[first + b] ? mass : 0;
		}
	}

	void plan()
	{
		PlanInput input;
		input.now_ms = now_ms_;
		input.hot = {nr_resident_ * block_bytes, budget_ * block_bytes,
			     budget_ * block_bytes, budget_ * block_bytes};
		input.move_budget_bytes = input.spill_budget_bytes = UINT64_MAX;
		for (const Order &order : policy_.plan(input))
			move(order.extent.first, order.extent.nr,
			     order.action == Action::Prefetch || order.action == Action::Promote
				     ? Where::Hot
				     : Where::Cold);
	}

	void move(uint32_t first, uint32_t nr, Where where)
	{
		policy_.moved({0, first, nr}, where, now_ms_);
		for (uint32_t b = first; b < first + nr; b++) {
			nr_resident_ += (where == Where::Hot) - resident_[b];
			resident_[b] = where == Where::Hot;
		}
	}

	const AttTrace &trace_;
	const Access &access_;
	Policy policy_;
	Geometry geometry_;
	uint64_t budget_; /* blocks of all heads */
	std::vector<uint8_t> resident_;
	uint64_t nr_resident_ = 0;
	uint64_t now_ms_ = step_ms;
	std::vector<uint32_t> picked_;
};

} // namespace

void replay_core(const AttTrace &trace, const PolicyOptions &options, const Access &access,
		 double budget, AttHits &hits)
{
	Replay(trace, options, access, budget).run(hits);
}

void replay_core(const AttTrace &trace, const char *preset, const Access &access, double budget,
		 AttHits &hits)
{
	PolicyOptions options;
	options.preset = preset;
	options.access_mass = 0; /* the trace says what an access is */
	options.anchor_blocks = 0;
	options.prefetch_window_tokens = options.prefetch_layers = 0;
	replay_core(trace, options, access, budget, hits);
}

} // namespace cxlkv::sim
