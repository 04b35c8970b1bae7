/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/att_core.h"

#include "sim/core_tier.h"

namespace cxlkv::sim {

namespace {

Geometry geometry_of(const AttTrace &trace)
{
	Geometry geometry;
	geometry.nr_slots = 1;
	geometry.nr_layers = trace.layers;
	geometry.nr_kv_heads = trace.kv_heads;
	geometry.tokens_per_block = trace.tokens_per_block;
	geometry.tokens_per_slot = trace.blocks * trace.tokens_per_block;
	return geometry;
}

class Replay {
public:
	Replay(const AttTrace &trace, const PolicyOptions &options, const Access &access,
	       double budget)
	    : trace_(trace), access_(access), geometry_(geometry_of(trace)),
	      tier_(geometry_, options,
		    uint64_t{budget_blocks(trace, budget)} * trace.layers * trace.kv_heads)
	{
	}

	void run(AttHits &hits)
	{
		for (uint32_t t = 0; t < trace_.steps; t++)
			step(t, t >= trace_.steps / 2 ? &hits : nullptr);
	}

private:
	void step(uint32_t t, AttHits *hits)
	{
		tier_.step();
		tier_.position(0, t);
		if (t % trace_.tokens_per_block == 0)
			for (uint32_t head = 0; head < geometry_.nr_heads(); head++)
				tier_.move(geometry_.block_index(0, head, trace_.current(t)), 1,
					   Where::Hot);
		for (uint32_t head = 0; head < geometry_.nr_heads(); head++)
			step_head(t, head, hits);
		tier_.plan();
	}

	void step_head(uint32_t t, uint32_t head, AttHits *hits)
	{
		uint32_t first = geometry_.block_index(0, head, 0);
		auto row = trace_.row(head / trace_.kv_heads, head % trace_.kv_heads, t);
		access_.pick(row, trace_.current(t) + 1, picked_);
		if (hits)
			count(row, first, *hits);
		for (uint32_t b : picked_)
			tier_.read(first + b, AttTrace::mass(row[b]));
	}

	void count(std::span<const uint8_t> row, uint32_t first, AttHits &hits) const
	{
		hits.nr_head_steps++;
		hits.nr_accesses += picked_.size();
		for (uint32_t b : picked_)
			(tier_.resident(first + b) ? hits.nr_hits : hits.nr_fetched)++;
		for (uint32_t b = 0; b < row.size(); b++) {
			double mass = AttTrace::mass(row[b]);
			hits.mass += mass;
			hits.mass_resident += tier_.resident(first + b) ? mass : 0;
		}
	}

	const AttTrace &trace_;
	const Access &access_;
	const Geometry geometry_;
	CoreTier tier_;
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
	replay_core(trace, sim_options(preset), access, budget, hits);
}

} // namespace cxlkv::sim
