/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_index.h"

#include <utility>

namespace cxlkv {

Location StoreIndex::find(BlockKey key) const
{
	auto arena = arenas_.find(key.arena);
	if (arena == arenas_.end())
		return {};
	auto page = arena->second.find(key.block / kPageBlocks);
	return page == arena->second.end() ? Location()
					   : page->second->locations[key.block % kPageBlocks];
}

Location StoreIndex::set(BlockKey key, Location location)
{
	auto &page = arenas_[key.arena][key.block / kPageBlocks];
	if (!page)
		page = std::make_unique<Page>();
	Location old = std::exchange(page->locations[key.block % kPageBlocks], location);
	if (!old) {
		page->used++;
		size_++;
	}
	return old;
}

Location StoreIndex::erase(BlockKey key)
{
	auto arena = arenas_.find(key.arena);
	if (arena == arenas_.end())
		return {};
	auto page = arena->second.find(key.block / kPageBlocks);
	if (page == arena->second.end())
		return {};
	Location old = std::exchange(page->second->locations[key.block % kPageBlocks], Location());
	if (!old)
		return old;
	size_--;
	if (--page->second->used == 0)
		arena->second.erase(page);
	if (arena->second.empty())
		arenas_.erase(arena);
	return old;
}

std::vector<BlockKey> StoreIndex::keys(uint64_t arena, uint32_t first, uint32_t nr) const
{
	std::vector<BlockKey> keys;
	auto it = arenas_.find(arena);

	if (it == arenas_.end())
		return keys;
	for (auto &[number, page] : it->second) {
		for (uint32_t i = 0; i < kPageBlocks; i++) {
			uint32_t block = number * kPageBlocks + i;
			if (page->locations[i] && block >= first && block - first < nr)
				keys.push_back({arena, block});
		}
	}
	return keys;
}

std::vector<uint64_t> StoreIndex::arenas() const
{
	std::vector<uint64_t> arenas;

	for (auto &[arena, pages] : arenas_)
		arenas.push_back(arena);
	return arenas;
}

} // namespace cxlkv
