/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Policies with a queue on probation: S3-FIFO (SOSP'23) and 2Q (VLDB'94). */
#include "sim/index_list.h"
#include "sim/policies.h"

#include <algorithm>

namespace cxlkv::sim {

namespace {

/* Small queue a tenth of the cache, ghost as large as the cache. */
class S3Fifo : public BlockwiseCache {
public:
	explicit S3Fifo(const CacheSetup &setup)
	    : capacity_(setup.capacity), small_capacity_(std::max(1u, setup.capacity / 10)),
	      lists_(setup.trace.nr_unique(), 3), uses_(setup.trace.nr_unique())
	{
	}

	[[nodiscard]] bool contains(uint32_t block) const override
	{
		uint8_t list = lists_.list_of(block);
		return list == small || list == main;
	}

protected:
	bool access(uint32_t block, uint32_t, const Request &) override
	{
		if (contains(block)) {
			uses_[block] = static_cast<uint8_t>(std::min(3, uses_[block] + 1));
			return true;
		}
		while (lists_.size(small) + lists_.size(main) >= capacity_)
			evict();
		uses_[block] = 0;
		if (lists_.list_of(block) == ghost)
			lists_.move(main, block);
		else
			lists_.push(small, block);
		return false;
	}

private:
	enum : uint8_t { small, main, ghost };

	void evict()
	{
		if (lists_.size(small) >= small_capacity_ || !lists_.size(main))
			evict_small();
		else
			evict_main();
	}

	void evict_small()
	{
		while (lists_.size(small)) {
			uint32_t block = lists_.pop_oldest(small);
			if (uses_[block] > 1) {
				uses_[block] = 0;
				lists_.push(main, block);
				continue;
			}
			if (lists_.size(ghost) >= capacity_)
				lists_.pop_oldest(ghost);
			lists_.push(ghost, block);
			return;
		}
	}

	void evict_main()
	{
		while (lists_.size(main)) {
			uint32_t block = lists_.pop_oldest(main);
			if (!uses_[block])
				return;
			uses_[block]--;
			lists_.push(main, block);
		}
	}

	uint32_t capacity_, small_capacity_;
	IndexLists lists_;
	std::vector<uint8_t> uses_;
};

/* In-queue a quarter of the cache, ghost half of it. */
class TwoQueue : public BlockwiseCache {
public:
	explicit TwoQueue(const CacheSetup &setup)
	    : capacity_(setup.capacity), in_capacity_(std::max(1u, setup.capacity / 4)),
	      ghost_capacity_(std::max(1u, setup.capacity / 2)), lists_(setup.trace.nr_unique(), 3)
	{
	}

	[[nodiscard]] bool contains(uint32_t block) const override
	{
		uint8_t list = lists_.list_of(block);
		return list == in || list == main;
	}

protected:
	bool access(uint32_t block, uint32_t, const Request &) override
	{
		uint8_t list = lists_.list_of(block);
		if (list == main)
			lists_.move(main, block);
		if (list == main || list == in)
			return true;
		make_room();
		if (lists_.list_of(block) == ghost)
			lists_.move(main, block);
		else
			lists_.push(in, block);
		return false;
	}

private:
	enum : uint8_t { in, main, ghost };

	void make_room()
	{
		if (lists_.size(in) + lists_.size(main) < capacity_)
			return;
		if (lists_.size(in) > in_capacity_ || !lists_.size(main)) {
			uint32_t block = lists_.pop_oldest(in);
			if (lists_.size(ghost) >= ghost_capacity_)
				lists_.pop_oldest(ghost);
			lists_.push(ghost, block);
		} else {
			lists_.pop_oldest(main);
		}
	}

	uint32_t capacity_, in_capacity_, ghost_capacity_;
	IndexLists lists_;
};

} // namespace

std::unique_ptr<Cache> make_s3fifo(const CacheSetup &setup)
{
	return std::make_unique<S3Fifo>(setup);
}

std::unique_ptr<Cache> make_two_queue(const CacheSetup &setup)
{
	return std::make_unique<TwoQueue>(setup);
}

} // namespace cxlkv::sim
