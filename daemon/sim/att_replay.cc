/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/att_replay.h"

#include "sim/att_core.h"
#include "sim/att_policies.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cxlkv::sim {

namespace {

/* Heads of a layer that compete for one budget, and which of their blocks are resident. */
class Group {
public:
	Group(const AttTrace &trace, const AttPolicy &policy, const Access &access, uint32_t layer,
	      uint32_t first_head, uint32_t nr_heads, uint32_t budget)
	    : trace_(trace), policy_(policy), access_(access), layer_(layer),
	      first_head_(first_head), nr_heads_(nr_heads),
	      stride_(policy.sharing == Sharing::Layer ? 0 : trace.blocks),
	      nr_blocks_(stride_ ? nr_heads * stride_ : trace.blocks), budget_(budget),
	      resident_(nr_blocks_), nr_accessing_(nr_blocks_), mass_(nr_blocks_)
	{
	}

	void run(AttHits &hits)
	{
		AttGroup group{nr_blocks_,
			       trace_.blocks,
			       trace_.tokens_per_block,
			       budget_ * trace_.blocks / nr_blocks_,
			       {}};
		if (!policy_.online) {
			foresee();
			group.next_access = [this](uint32_t block, uint32_t step) {
				const auto &steps = future_[block];
				auto next = std::upper_bound(steps.begin(), steps.end(), step);
				return next == steps.end() ? UINT32_MAX : *next;
			};
		}
		score_ = policy_.make(group);
		for (uint32_t t = 0; t < trace_.steps; t++) {
			look(t);
			step(t, t >= trace_.steps / 2 ? &hits : nullptr);
		}
	}

private:
	/* What the heads do in the step: mass_, nr_accessing_, accessed_. */
	void look(uint32_t t)
	{
		std::fill(mass_.begin(), mass_.end(), 0.f);
		std::fill(nr_accessing_.begin(), nr_accessing_.end(), 0);
		uint32_t nr_visible = trace_.current(t) + 1;
		for (uint32_t h = 0; h < nr_heads_; h++) {
			auto row = trace_.row(layer_, first_head_ + h, t);
			for (uint32_t b = 0; b < nr_visible; b++)
				mass_[h * stride_ + b] += AttTrace::mass(row[b]);
			access_.pick(row, nr_visible, picked_);
			for (uint32_t b : picked_)
				nr_accessing_[h * stride_ + b]++;
		}
		accessed_.clear();
		for (uint32_t b = 0; b < nr_blocks_; b++)
			if (nr_accessing_[b])
				accessed_.push_back(b);
	}

	void foresee()
	{
		future_.resize(nr_blocks_);
		for (uint32_t t = 0; t < trace_.steps; t++) {
			look(t);
			for (uint32_t b : accessed_)
				future_[b].push_back(t);
		}
	}

	void step(uint32_t t, AttHits *hits)
	{
		/* The block that is being written is there. */
		for (uint32_t b = trace_.current(t); b < nr_blocks_; b += trace_.blocks)
			enter(b);
		if (hits)
			count(*hits);
		for (uint32_t b : accessed_)
			enter(b);
		if (policy_.prefetch)
			prefetch(t, hits);
		score_->step(t, mass_, accessed_);
		make_room(t);
	}

	void prefetch(uint32_t t, AttHits *hits)
	{
		for (uint32_t block : accessed_) {
			uint32_t at = block % trace_.blocks, first = block - at;
			uint32_t last = std::min(trace_.current(t), at + policy_.prefetch);
			for (uint32_t b = at - std::min(at, policy_.prefetch); b <= last; b++) {
				if (hits && !resident_[first + b])
					hits->nr_fetched += stride_ ? 1 : nr_heads_;
				enter(first + b);
			}
		}
	}

	void count(AttHits &hits) const
	{
		/* A block that holds all heads is fetched for all. */
		uint32_t weight = stride_ ? 1 : nr_heads_;
		hits.nr_head_steps += nr_heads_;
		for (uint32_t b : accessed_) {
			hits.nr_accesses += nr_accessing_[b];
			hits.nr_hits += resident_[b] ? nr_accessing_[b] : 0;
			hits.nr_fetched += resident_[b] ? 0 : weight;
		}
		for (uint32_t b = 0; b < nr_blocks_; b++) {
			hits.mass += mass_[b];
			hits.mass_resident += resident_[b] ? mass_[b] : 0;
		}
	}

	void enter(uint32_t block)
	{
		if (resident_[block])
			return;
		resident_[block] = 1;
		members_.push_back(block);
	}

	/* Neither the block that is being written nor an anchor leaves. */
	void make_room(uint32_t t)
	{
		if (members_.size() <= budget_)
			return;
		ranked_.clear();
		for (uint32_t b : members_) {
			uint32_t at = b % trace_.blocks;
			bool stays = at == trace_.current(t) || at < policy_.anchors;
			ranked_.push_back(
				{stays ? std::numeric_limits<double>::max() : score_->score(b), b});
		}
		size_t leaving = members_.size() - budget_;
		std::nth_element(ranked_.begin(), ranked_.begin() + static_cast<ptrdiff_t>(leaving),
				 ranked_.end());
		members_.clear();
		for (size_t i = 0; i < ranked_.size(); i++) {
			if (i < leaving)
				resident_[ranked_[i].second] = 0;
			else
				members_.push_back(ranked_[i].second);
		}
	}

	const AttTrace &trace_;
	const AttPolicy &policy_;
	const Access &access_;
	uint32_t layer_, first_head_, nr_heads_;
	uint32_t stride_; /* from a block of one head to that of the next; 0: they are one */
	uint32_t nr_blocks_, budget_;
	std::unique_ptr<AttScore> score_;
	std::vector<uint8_t> resident_;
	std::vector<uint32_t> members_; /* the resident ones */
	std::vector<std::vector<uint32_t>> future_;
	std::vector<std::pair<double, uint32_t>> ranked_;
	/* Of the current step. */
	std::vector<uint32_t> nr_accessing_; /* heads, by block */
	std::vector<float> mass_;
	std::vector<uint32_t> accessed_, picked_;
};

} // namespace

uint32_t budget_blocks(const AttTrace &trace, double budget)
{
	return std::max(1u, static_cast<uint32_t>(std::lround(budget * trace.blocks)));
}

void replay_att(const AttTrace &trace, const AttPolicy &policy, const Access &access, double budget,
		AttHits &hits)
{
	if (policy.sharing == Sharing::Core)
		return replay_core(trace, policy.name, access, budget, hits);
	for (uint32_t layer = 0; layer < trace.layers; layer++) {
		double share = policy.layer_share ? policy.layer_share(layer, trace.layers) : 1;
		uint32_t blocks = budget_blocks(trace, budget * share);
		if (policy.sharing == Sharing::Pool)
			Group(trace, policy, access, layer, 0, trace.kv_heads,
			      blocks * trace.kv_heads)
				.run(hits);
		else if (policy.sharing == Sharing::Layer)
			Group(trace, policy, access, layer, 0, trace.kv_heads, blocks).run(hits);
		else
			for (uint32_t head = 0; head < trace.kv_heads; head++)
				Group(trace, policy, access, layer, head, 1, blocks).run(hits);
	}
}

} // namespace cxlkv::sim
