/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/chunk_pool.h"

#include <utility>

namespace cxlkv {

void ChunkPool::append(List &to, List &from)
{
	if (to.empty()) {
		to = std::exchange(from, List());
		return;
	}
	if (from.empty())
		return;
	/* Only the first chunk may have room: those of the second list's go in front. */
	uint32_t blocks[per_chunk];
	uint32_t nr = pop_chunk(from, blocks);
	if (!from.empty()) {
		(*this)[to.tail].next = from.head;
		to.tail = from.tail;
	}
	for (uint32_t i = 0; i < nr; i++)
		push(to, blocks[i]);
	from = List();
}

void ChunkPool::grow()
{
	uint32_t first = static_cast<uint32_t>(slabs_.size()) * per_slab;
	slabs_.push_back(std::make_unique_for_overwrite<Chunk[]>(per_slab));
	for (uint32_t i = per_slab; i-- > 0;) {
		(*this)[first + i].next = free_;
		free_ = first + i;
	}
}

} // namespace cxlkv
