/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/att_policies.h"

#include "core/score.h"

#include <algorithm>

namespace cxlkv::sim {

namespace {

/* The step of the last access; among equals the one of more mass is the younger. */
class LastAccess : public AttScore {
public:
	explicit LastAccess(const AttGroup &group) : last_(group.nr_blocks) {}
	void step(uint32_t step, std::span<const float> mass,
		  std::span<const uint32_t> accessed) override
	{
		for (uint32_t b : accessed)
			last_[b] = step + std::min(mass[b], 0.99f);
	}
	[[nodiscard]] double score(uint32_t block) const override { return last_[block]; }

private:
	std::vector<double> last_;
};

class NrAccesses : public AttScore {
public:
	explicit NrAccesses(const AttGroup &group) : nr_(group.nr_blocks) {}
	void step(uint32_t, std::span<const float>, std::span<const uint32_t> accessed) override
	{
		for (uint32_t b : accessed)
			nr_[b]++;
	}
	[[nodiscard]] double score(uint32_t block) const override { return nr_[block]; }

private:
	std::vector<uint32_t> nr_;
};

/* H2O: half of the budget for the blocks before the current one, half by all the attention ever
 * got. */
class HeavyHitters : public AttScore {
public:
	explicit HeavyHitters(const AttGroup &group)
	    : group_(group), nr_recent_(group.budget / 2), sum_(group.nr_blocks)
	{
	}
	void step(uint32_t step, std::span<const float> mass, std::span<const uint32_t>) override
	{
		current_ = step / group_.tokens_per_block;
		for (size_t b = 0; b < mass.size(); b++)
			sum_[b] += mass[b];
	}
	[[nodiscard]] double score(uint32_t block) const override
	{
		bool recent = block % group_.per_head + nr_recent_ >= current_;
		return sum_[block] + (recent ? 1e9 : 0);
	}

private:
	const AttGroup group_;
	uint32_t nr_recent_, current_ = 0;
	std::vector<double> sum_;
};

class MassEma : public AttScore {
public:
	MassEma(const AttGroup &group, float alpha) : ema_(group.nr_blocks), alpha_(alpha) {}
	void step(uint32_t, std::span<const float> mass, std::span<const uint32_t>) override
	{
		for (size_t b = 0; b < mass.size(); b++)
			ema_[b] += alpha_ * (mass[b] - ema_[b]);
	}
	[[nodiscard]] double score(uint32_t block) const override { return ema_[block]; }

private:
	std::vector<float> ema_;
	float alpha_;
};

/* The paper's (1 - ema) * decay by its plain definition, a step of the EMA every step. */
class PaperPriority : public MassEma {
public:
	explicit PaperPriority(const AttGroup &group) : MassEma(group, 0.2f), last_(group.nr_blocks)
	{
	}
	void step(uint32_t step, std::span<const float> mass,
		  std::span<const uint32_t> accessed) override
	{
		MassEma::step(step, mass, accessed);
		for (uint32_t b : accessed)
			last_[b] = step;
		now_ = step;
	}
	[[nodiscard]] double score(uint32_t block) const override
	{
		return -eviction_priority(MassEma::score(block),
					  recency_decay(now_ - last_[block], 1000));
	}

private:
	std::vector<uint32_t> last_;
	uint32_t now_ = 0;
};

/* The last tokens; with an anchor the sink and the window of StreamingLLM. */
class Position : public AttScore {
public:
	explicit Position(const AttGroup &group) : per_head_(group.per_head) {}
	void step(uint32_t, std::span<const float>, std::span<const uint32_t>) override {}
	[[nodiscard]] double score(uint32_t block) const override { return block % per_head_; }

private:
	uint32_t per_head_;
};

/* Belady. */
class NextAccess : public AttScore {
public:
	explicit NextAccess(const AttGroup &group) : next_(group.next_access) {}
	void step(uint32_t step, std::span<const float>, std::span<const uint32_t>) override
	{
		step_ = step;
	}
	[[nodiscard]] double score(uint32_t block) const override
	{
		return -double(next_(block, step_));
	}

private:
	std::function<uint32_t(uint32_t, uint32_t)> next_;
	uint32_t step_ = 0;
};

template <typename T> std::unique_ptr<AttScore> make(const AttGroup &group)
{
	return std::make_unique<T>(group);
}

template <int permil> std::unique_ptr<AttScore> make_ema(const AttGroup &group)
{
	return std::make_unique<MassEma>(group, permil / 1000.f);
}

/* PyramidKV: budgets fall linearly from 1.5 times the mean in the first layer to half of it in the
 * last. */
double pyramid(uint32_t layer, uint32_t nr_layers)
{
	return nr_layers > 1 ? 1.5 - double(layer) / (nr_layers - 1) : 1;
}

} // namespace

const std::vector<AttPolicy> &att_policies()
{
	using enum Sharing;
	static const std::vector<AttPolicy> policies = {
		{"adaptive", "the daemon's default", Core, 0, true, nullptr, nullptr},
		{"paper", "the daemon's paper preset", Core, 0, true, nullptr, nullptr},
		{"lru+glob", "LRU, all heads of a layer as one", Layer, 0, true, make<LastAccess>,
		 nullptr},
		{"lru+head", "LRU", Head, 0, true, make<LastAccess>, nullptr},
		{"lru+head+anchor", "LRU, first block kept", Head, 1, true, make<LastAccess>,
		 nullptr},
		{"lru+pool", "LRU, one budget a layer", Pool, 0, true, make<LastAccess>, nullptr},
		{"lfu+head", "number of accesses", Head, 0, true, make<NrAccesses>, nullptr},
		{"paper+head", "(1 - ema) * decay", Head, 0, true, make<PaperPriority>, nullptr},
		{"ema:0.2+head", "EMA of the mass", Head, 0, true, make_ema<200>, nullptr},
		{"ema:0.2+pool", "the same, one budget a layer", Pool, 0, true, make_ema<200>,
		 nullptr},
		{"ema:0.05+head", "half-life 14 steps", Head, 0, true, make_ema<50>, nullptr},
		{"ema:0.05+pool", "the same, one budget a layer", Pool, 0, true, make_ema<50>,
		 nullptr},
		{"h2o+head", "H2O: accumulated mass and the last blocks", Head, 1, true,
		 make<HeavyHitters>, nullptr},
		{"sink+window", "the first block and the last ones", Head, 1, true, make<Position>,
		 nullptr},
		{"pyramid+head", "PyramidKV-like: H2O, early layers get more", Head, 1, true,
		 make<HeavyHitters>, pyramid},
		{"ada+pool", "Ada-KV-like: H2O, one budget a layer", Pool, 1, true,
		 make<HeavyHitters>, nullptr},
		{"opt+head", "Belady, knows the future", Head, 0, false, make<NextAccess>, nullptr},
		{"opt+pool", "Belady, one budget a layer", Pool, 0, false, make<NextAccess>,
		 nullptr},
	};
	return policies;
}

const std::vector<AttPolicy> &att_ladder()
{
	using enum Sharing;
	static const std::vector<AttPolicy> rungs = {
		{"lru", "the ground", Layer, 0, true, make<LastAccess>, nullptr},
		{"lru+anchors", "", Layer, 1, true, make<LastAccess>, nullptr},
		{"lru+ema", "", Layer, 0, true, make<PaperPriority>, nullptr},
		{"lru+per-head", "", Head, 0, true, make<LastAccess>, nullptr},
		{"lru+prefetch", "", Layer, 0, true, make<LastAccess>, nullptr, 1},
		{"all", "anchors, EMA, per head, prefetch", Head, 1, true, make<PaperPriority>,
		 nullptr, 1},
		{"all-anchors", "", Head, 0, true, make<PaperPriority>, nullptr, 1},
		{"all-ema", "", Head, 1, true, make<LastAccess>, nullptr, 1},
		{"all-per-head", "", Layer, 1, true, make<PaperPriority>, nullptr, 1},
		{"all-prefetch", "", Head, 1, true, make<PaperPriority>, nullptr},
		{"adaptive", "the daemon's default", Core, 0, true, nullptr, nullptr},
		{"opt+glob", "Belady on whole layers", Layer, 0, false, make<NextAccess>, nullptr},
		{"opt+head", "Belady, per head", Head, 0, false, make<NextAccess>, nullptr},
	};
	return rungs;
}

const AttPolicy *find_att_policy(std::string_view name)
{
	for (const AttPolicy &policy : att_policies())
		if (name == policy.name)
			return &policy;
	return nullptr;
}

} // namespace cxlkv::sim
