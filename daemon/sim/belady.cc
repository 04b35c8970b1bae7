/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Belady's OPT: evicts, or does not even admit, the block whose next use is farthest. Knows the
 * future. */
#include "sim/policies.h"

#include <set>

namespace cxlkv::sim {

namespace {

class Belady : public BlockwiseCache {
public:
	explicit Belady(const CacheSetup &setup)
	    : capacity_(setup.capacity), resident_until_(setup.trace.nr_unique(), absent),
	      next_use_(setup.trace.nr_accesses())
	{
		const std::vector<uint32_t> &accesses = setup.trace.accesses();
		std::vector<uint64_t> next(setup.trace.nr_unique(), never);
		for (uint64_t i = accesses.size(); i-- > 0;) {
			next_use_[i] = next[accesses[i]];
			next[accesses[i]] = i;
		}
	}

	[[nodiscard]] bool contains(uint32_t block) const override
	{
		return resident_until_[block] != absent;
	}

protected:
	bool access(uint32_t block, uint32_t position, const Request &request) override
	{
		uint64_t next = next_use_[request.first + position];
		bool hit = contains(block);
		if (hit) {
			order_.erase({resident_until_[block], block});
			resident_until_[block] = absent;
		}
		if (next == never)
			return hit;
		if (order_.size() == capacity_) {
			auto farthest = std::prev(order_.end());
			if (farthest->first < next)
				return hit;
			resident_until_[farthest->second] = absent;
			order_.erase(farthest);
		}
		resident_until_[block] = next;
		order_.insert({next, block});
		return hit;
	}

private:
	static constexpr uint64_t absent = UINT64_MAX, never = UINT64_MAX - 1;

	uint32_t capacity_;
	std::vector<uint64_t> resident_until_; /* number of the access that uses the block next */
	std::vector<uint64_t> next_use_;       /* by number of access */
	std::set<std::pair<uint64_t, uint32_t>> order_;
};

} // namespace

std::unique_ptr<Cache> make_belady(const CacheSetup &setup)
{
	return std::make_unique<Belady>(setup);
}

} // namespace cxlkv::sim
