/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* LRU, and LRU with a prefix's tail older than its head. */
#include "sim/index_list.h"
#include "sim/policies.h"

namespace cxlkv::sim {

namespace {

class Lru : public BlockwiseCache {
public:
	Lru(const CacheSetup &setup, bool leaf_first)
	    : BlockwiseCache(leaf_first), capacity_(setup.capacity),
	      lists_(setup.trace.nr_unique(), 1)
	{
	}

	[[nodiscard]] bool contains(uint32_t block) const override
	{
		return lists_.list_of(block) == 0;
	}

protected:
	bool access(uint32_t block, uint32_t, const Request &) override
	{
		if (contains(block)) {
			lists_.move(0, block);
			return true;
		}
		if (lists_.size(0) == capacity_)
			lists_.pop_oldest(0);
		lists_.push(0, block);
		return false;
	}

	void touch(uint32_t block) override
	{
		if (contains(block))
			lists_.move(0, block);
	}

private:
	uint32_t capacity_;
	IndexLists lists_;
};

} // namespace

std::unique_ptr<Cache> make_lru(const CacheSetup &setup, bool leaf_first)
{
	return std::make_unique<Lru>(setup, leaf_first);
}

} // namespace cxlkv::sim
