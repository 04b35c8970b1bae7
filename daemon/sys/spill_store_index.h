/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where the committed record of each block is: 8 bytes a block, in pages, so that any block number
 * is cheap. */
#pragma once

#include "sys/spill_store.h"

#include <array>
#include <unordered_map>

namespace cxlkv {

/* A record: entry of the block table of a segment. */
struct Location {
	static constexpr uint32_t kNone = UINT32_MAX;
	uint32_t segment = kNone;
	uint32_t slot = 0;

	explicit operator bool() const { return segment != kNone; }
	bool operator==(const Location &) const = default;
};

struct BlockKeyHash {
	size_t operator()(const BlockKey &key) const
	{
		return std::hash<uint64_t>()(key.arena * 0x9e3779b97f4a7c15 + key.block);
	}
};

class StoreIndex {
public:
	[[nodiscard]] Location find(BlockKey key) const;
	/* Returns what was there. */
	Location set(BlockKey key, Location location);
	Location erase(BlockKey key);
	/* Blocks of the arena with a record, from first on, in no order; nr UINT32_MAX: all from
	 * there. */
	[[nodiscard]] std::vector<BlockKey> keys(uint64_t arena, uint32_t first, uint32_t nr) const;
	[[nodiscard]] std::vector<uint64_t> arenas() const;
	[[nodiscard]] uint64_t size() const { return size_; }

private:
	static constexpr uint32_t kPageBlocks = 512;
	struct Page {
		std::array<Location, kPageBlocks> locations;
		uint32_t used = 0;
	};
	using Pages = std::unordered_map<uint32_t, std::unique_ptr<Page>>;

	std::unordered_map<uint64_t, Pages> arenas_;
	uint64_t size_ = 0;
};

} // namespace cxlkv
