/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Doubly linked lists of block numbers in two shared arrays; a block is in one list at most. */
#pragma once

#include <cstdint>
#include <vector>

namespace cxlkv::sim {

class IndexLists {
public:
	static constexpr uint32_t none = UINT32_MAX;

	/* Lists 0..nr_lists-1 over blocks 0..nr_blocks-1. */
	IndexLists(uint32_t nr_blocks, uint32_t nr_lists)
	    : nr_blocks_(nr_blocks), next_(nr_blocks + nr_lists), prev_(nr_blocks + nr_lists),
	      list_(nr_blocks, no_list), size_(nr_lists)
	{
		for (uint32_t i = nr_blocks; i < next_.size(); i++)
			next_[i] = prev_[i] = i;
	}

	/* no_list where the block is in none. */
	[[nodiscard]] uint8_t list_of(uint32_t block) const { return list_[block]; }
	[[nodiscard]] uint32_t size(uint8_t list) const { return size_[list]; }
	/* The block that was pushed longest ago, or none. */
	[[nodiscard]] uint32_t oldest(uint8_t list) const
	{
		uint32_t block = prev_[nr_blocks_ + list];
		return block < nr_blocks_ ? block : none;
	}

	/* The block of the same list that was pushed next after it, or none. */
	[[nodiscard]] uint32_t newer(uint32_t block) const
	{
		uint32_t next = prev_[block];
		return next < nr_blocks_ ? next : none;
	}

	void push(uint8_t list, uint32_t block)
	{
		uint32_t head = nr_blocks_ + list;
		next_[block] = next_[head];
		prev_[block] = head;
		prev_[next_[head]] = block;
		next_[head] = block;
		list_[block] = list;
		size_[list]++;
	}

	void remove(uint32_t block)
	{
		next_[prev_[block]] = next_[block];
		prev_[next_[block]] = prev_[block];
		size_[list_[block]]--;
		list_[block] = no_list;
	}

	void move(uint8_t list, uint32_t block)
	{
		remove(block);
		push(list, block);
	}

	uint32_t pop_oldest(uint8_t list)
	{
		uint32_t block = oldest(list);
		remove(block);
		return block;
	}

	static constexpr uint8_t no_list = UINT8_MAX;

private:
	uint32_t nr_blocks_;
	std::vector<uint32_t> next_, prev_;
	std::vector<uint8_t> list_;
	std::vector<uint32_t> size_;
};

} // namespace cxlkv::sim
