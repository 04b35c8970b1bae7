/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The paper's formula on a block trace: (1 - ema) * decay, a step a request, the
 * highest leaves. Forgets what it evicts.
 */
#include "core/score.h"
#include "sim/index_list.h"
#include "sim/policies.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

namespace cxlkv::sim {

namespace {

class Paper : public BlockwiseCache {
public:
	Paper(const CacheSetup &setup, double alpha, double tau)
	    : capacity_(setup.capacity), alpha_(alpha), tau_(tau),
	      lists_(setup.trace.nr_unique(), 1), ema_(setup.trace.nr_unique()),
	      used_(setup.trace.nr_unique())
	{
	}

	[[nodiscard]] bool contains(uint32_t block) const override
	{
		return lists_.list_of(block) == resident;
	}

protected:
	bool access(uint32_t block, uint32_t, const Request &request) override
	{
		bool hit = contains(block);
		if (now_ != request.number)
			begin(request.number);
		if (hit) {
			if (block == next_)
				next_ = lists_.newer(block);
			lists_.move(resident, block);
		} else {
			if (lists_.size(resident) == capacity_)
				evict();
			lists_.push(resident, block);
		}
		ema_[block] = hit ? std::min(1.0, alpha_ + ema(block)) : alpha_;
		used_[block] = now_;
		return hit;
	}

private:
	static constexpr uint8_t resident = 0;

	[[nodiscard]] double ema(uint32_t block) const
	{
		return ema_[block] * std::pow(1 - alpha_, now_ - used_[block]);
	}
	[[nodiscard]] double decay(uint32_t block) const
	{
		return recency_decay(now_ - used_[block], tau_);
	}

	/* Priorities change from one request to the next, not within one. */
	void begin(uint32_t request)
	{
		now_ = request;
		candidates_ = {};
		nr_candidates_ = 0;
		next_ = lists_.oldest(resident);
	}

	/* No priority is above its decay, which falls from the oldest block to the youngest: the
	 * search ends where none that follows can be above the best so far. */
	void look_ahead()
	{
		while (next_ != IndexLists::none && used_[next_] != now_ &&
		       (candidates_.empty() || decay(next_) > std::get<0>(candidates_.top()))) {
			candidates_.push({eviction_priority(ema(next_), decay(next_)),
					  -++nr_candidates_, next_});
			next_ = lists_.newer(next_);
		}
	}

	void evict()
	{
		for (;;) {
			look_ahead();
			if (candidates_.empty()) /* all are of this request */
				return lists_.remove(lists_.oldest(resident));
			uint32_t block = std::get<2>(candidates_.top());
			candidates_.pop();
			if (used_[block] != now_)
				return lists_.remove(block);
		}
	}

	uint32_t capacity_;
	double alpha_, tau_;
	uint32_t now_ = UINT32_MAX; /* request */
	IndexLists lists_;
	std::vector<double> ema_;    /* at the last access */
	std::vector<uint32_t> used_; /* request of it */
	/* Older than next_: priority, the older of equals first, block. */
	std::priority_queue<std::tuple<double, int64_t, uint32_t>> candidates_;
	int64_t nr_candidates_ = 0;
	uint32_t next_ = IndexLists::none;
};

} // namespace

std::unique_ptr<Cache> make_paper(const CacheSetup &setup)
{
	return std::make_unique<Paper>(setup, 0.2, 1000);
}

} // namespace cxlkv::sim
