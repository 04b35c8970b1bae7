/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Policies that evict the lowest score: LFU, GDSF and LRFU. */
#include "sim/policies.h"

#include "core/score.h"

#include <cmath>
#include <limits>
#include <set>

namespace cxlkv::sim {

namespace {

/* Resident blocks in order of (score, age). */
class Scored : public BlockwiseCache {
public:
	explicit Scored(const CacheSetup &setup)
	    : capacity_(setup.capacity), keys_(setup.trace.nr_unique())
	{
	}

	[[nodiscard]] bool contains(uint32_t block) const override { return keys_[block].resident; }

protected:
	bool access(uint32_t block, uint32_t position, const Request &request) override
	{
		bool hit = contains(block);
		if (hit)
			remove(block);
		else if (order_.size() == capacity_)
			evict();
		keys_[block] = {score(block, position, request, hit), order_of_equals(position),
				true};
		order_.insert({keys_[block].score, keys_[block].stamp, block});
		return hit;
	}

	/* Called for an access of a block that is resident (hit) or about to be. */
	virtual double score(uint32_t block, uint32_t position, const Request &request,
			     bool hit) = 0;
	virtual void evicted(uint32_t, double) {}
	/* The lower goes first: the one that was touched longest ago. */
	virtual uint64_t order_of_equals(uint32_t) { return ++clock_; }

private:
	struct Key {
		double score;
		uint64_t stamp;
		bool resident;
	};

	void remove(uint32_t block)
	{
		order_.erase({keys_[block].score, keys_[block].stamp, block});
	}

	void evict()
	{
		auto [value, stamp, block] = *order_.begin();
		order_.erase(order_.begin());
		keys_[block].resident = false;
		evicted(block, value);
	}

	uint32_t capacity_;
	uint64_t clock_ = 0;
	std::vector<Key> keys_;
	std::set<std::tuple<double, uint64_t, uint32_t>> order_;
};

/* Forgets the count of a block that it evicts. */
class Lfu : public Scored {
public:
	explicit Lfu(const CacheSetup &setup) : Scored(setup), uses_(setup.trace.nr_unique()) {}

protected:
	double score(uint32_t block, uint32_t, const Request &, bool hit) override
	{
		uses_[block] = hit ? uses_[block] + 1 : 1;
		return uses_[block];
	}

private:
	std::vector<uint32_t> uses_;
};

/* Greedy dual, size 1, cost 1 + position / 64: a late block costs more to recompute. */
class Gdsf : public Scored {
public:
	explicit Gdsf(const CacheSetup &setup) : Scored(setup), uses_(setup.trace.nr_unique()) {}

protected:
	double score(uint32_t block, uint32_t position, const Request &, bool hit) override
	{
		uses_[block] = hit ? uses_[block] + 1 : 1;
		return inflation_ + uses_[block] * (1 + position / 64.0);
	}

	void evicted(uint32_t, double value) override { inflation_ = value; }

private:
	std::vector<uint32_t> uses_;
	double inflation_ = 0;
};

/*
 * A pure EMA of use, a step a request. Kept as the request at which the score
 * would have been 1, which does not change while the block is not used. Forgets
 * what it evicts.
 */
class Lrfu : public Scored {
public:
	Lrfu(const CacheSetup &setup, double alpha)
	    : Scored(setup), alpha_(alpha), half_life_(half_life_steps(alpha)),
	      used_(setup.trace.nr_unique(), unused)
	{
	}

protected:
	double score(uint32_t block, uint32_t, const Request &request, bool) override
	{
		double now = request.number;
		double before = std::exp2((used_[block] - now) / half_life_);
		used_[block] = now + half_life_ * std::log2(alpha_ + before);
		return used_[block];
	}

	void evicted(uint32_t block, double) override { used_[block] = unused; }
	uint64_t order_of_equals(uint32_t position) override { return UINT32_MAX - position; }

private:
	static constexpr double unused = -std::numeric_limits<double>::infinity();

	double alpha_, half_life_;
	std::vector<double> used_;
};

} // namespace

std::unique_ptr<Cache> make_lfu(const CacheSetup &setup)
{
	return std::make_unique<Lfu>(setup);
}

std::unique_ptr<Cache> make_gdsf(const CacheSetup &setup)
{
	return std::make_unique<Gdsf>(setup);
}

std::unique_ptr<Cache> make_lrfu(const CacheSetup &setup, double alpha)
{
	return std::make_unique<Lrfu>(setup, alpha);
}

} // namespace cxlkv::sim
