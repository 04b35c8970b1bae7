/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ARC (Megiddo and Modha, FAST'03), plain and leaf first. */
#include "sim/index_list.h"
#include "sim/policies.h"

#include <algorithm>

namespace cxlkv::sim {

namespace {

class Arc : public BlockwiseCache {
public:
	Arc(const CacheSetup &setup, bool leaf_first)
	    : BlockwiseCache(leaf_first), capacity_(setup.capacity),
	      lists_(setup.trace.nr_unique(), 4)
	{
	}

	[[nodiscard]] bool contains(uint32_t block) const override
	{
		uint8_t list = lists_.list_of(block);
		return list == once || list == often;
	}

protected:
	bool access(uint32_t block, uint32_t, const Request &) override
	{
		switch (lists_.list_of(block)) {
		case once:
		case often:
			lists_.move(often, block);
			return true;
		case ghost_once:
			target_ = std::min(capacity_, target_ + step(ghost_often, ghost_once));
			replace(false);
			lists_.move(often, block);
			return false;
		case ghost_often:
			target_ -= std::min(target_, step(ghost_once, ghost_often));
			replace(true);
			lists_.move(often, block);
			return false;
		default:
			make_room();
			lists_.push(once, block);
			return false;
		}
	}

	void touch(uint32_t block) override
	{
		if (contains(block))
			lists_.move(lists_.list_of(block), block);
	}

private:
	enum : uint8_t { once, often, ghost_once, ghost_often };

	[[nodiscard]] uint32_t step(uint8_t other, uint8_t hit) const
	{
		return std::max(1u, lists_.size(other) / lists_.size(hit));
	}

	void make_room()
	{
		uint32_t recent = lists_.size(once) + lists_.size(ghost_once);
		uint32_t all = recent + lists_.size(often) + lists_.size(ghost_often);
		if (recent == capacity_) {
			if (lists_.size(once) < capacity_) {
				lists_.pop_oldest(ghost_once);
				replace(false);
			} else {
				lists_.pop_oldest(once);
			}
		} else if (all >= capacity_) {
			if (all == 2 * capacity_)
				lists_.pop_oldest(ghost_often);
			replace(false);
		}
	}

	void replace(bool ghost_often_hit)
	{
		if (lists_.size(once) + lists_.size(often) < capacity_)
			return;
		uint32_t nr = lists_.size(once);
		if (nr &&
		    (nr > target_ || (ghost_often_hit && nr == target_) || !lists_.size(often)))
			lists_.push(ghost_once, lists_.pop_oldest(once));
		else
			lists_.push(ghost_often, lists_.pop_oldest(often));
	}

	uint32_t capacity_;
	uint32_t target_ = 0; /* of the list of blocks seen once */
	IndexLists lists_;
};

} // namespace

std::unique_ptr<Cache> make_arc(const CacheSetup &setup, bool leaf_first)
{
	return std::make_unique<Arc>(setup, leaf_first);
}

} // namespace cxlkv::sim
