/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lists of block numbers in chunks of one cache line from a common pool: 4.3
 * bytes a number, however they are spread over lists, and a line of each list.
 */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cxlkv {

class ChunkPool {
public:
	static constexpr uint32_t none = UINT32_MAX;
	static constexpr uint32_t per_chunk = 15;

	struct Chunk {
		uint32_t next;
		uint32_t blocks[per_chunk];
	};

	/* The first chunk alone may have room: what is pushed is popped first. */
	struct List {
		uint32_t head = none, tail = none;
		uint32_t nr_head = 0; /* blocks of the first chunk */

		[[nodiscard]] bool empty() const { return head == none; }
	};

	void push(List &list, uint32_t block)
	{
		if (list.nr_head == per_chunk || list.empty()) {
			uint32_t fresh = get();
			(*this)[fresh].next = list.head;
			if (list.empty())
				list.tail = fresh;
			list.head = fresh;
			list.nr_head = 0;
		}
		(*this)[list.head].blocks[list.nr_head++] = block;
	}

	void push_soon(const List &list)
	{
		if (!list.empty())
			__builtin_prefetch(&(*this)[list.head], 1);
	}

	/* Takes the first chunk off a list that is not empty. Returns how many blocks it held, in
	 * the order in which they were pushed. */
	uint32_t pop_chunk(List &list, uint32_t (&blocks)[per_chunk])
	{
		uint32_t head = list.head, nr = list.nr_head;
		Chunk &chunk = (*this)[head];
		std::copy(chunk.blocks, chunk.blocks + per_chunk, blocks);
		list.head = chunk.next;
		list.nr_head = per_chunk;
		if (list.head == none)
			list = List();
		chunk.next = free_;
		free_ = head;
		return nr;
	}

	/* The blocks of from, which is empty then, follow those of to. */
	void append(List &to, List &from);

	Chunk &operator[](uint32_t i) { return slabs_[i / per_slab][i % per_slab]; }

private:
	static constexpr uint32_t per_slab = 4096;

	uint32_t get()
	{
		if (free_ == none)
			grow();
		uint32_t i = free_;
		free_ = (*this)[i].next;
		return i;
	}
	void grow();

	std::vector<std::unique_ptr<Chunk[]>> slabs_;
	uint32_t free_ = none;
};

} // namespace cxlkv
