/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which blocks of prefix chains stay in a tier of nr blocks. A chain is what a
 * request needs from its first token on, and only its leading resident part is
 * of use, so a block never leaves before those that build on it: the leaf of
 * the lowest worth (reuse_model.h) leaves first.
 *
 * What is known of a block outlives its stay in the tier, 18 bytes each, until
 * it is forgotten: the lower tiers hold it anyway.
 */
#pragma once

#include "core/reuse_model.h"

#include <cstdint>
#include <span>
#include <vector>

namespace cxlkv {

class PrefixCache {
public:
	explicit PrefixCache(uint32_t capacity) : capacity_(capacity) {}

	[[nodiscard]] bool resident(uint32_t block) const
	{
		return block < blocks_.size() && blocks_[block].resident;
	}

	/*
	 * The blocks of a chain are used, in prefix order. now_ms is of any clock;
	 * where it goes back it is taken for the latest so far.
	 * Returns how many were resident. Afterwards those that are worth most
	 * are: others, of this chain too, have left.
	 */
	uint32_t use(std::span<const uint32_t> chain, uint64_t now_ms);

private:
	static constexpr uint32_t none = UINT32_MAX;
	static constexpr double half_life_ms = 6 * 3600 * 1000;

	struct Block {
		uint32_t used = 0; /* ticks */
		uint32_t parent = none;
		uint32_t leaf = none;     /* index in leaves_ */
		uint32_t nr_children = 0; /* resident ones */
		uint8_t nr_uses = 0;      /* saturates */
		ReuseModel::Kind kind : 7 = 0;
		bool resident : 1 = false;
	};
	struct Victim {
		double worth;
		uint32_t used;
		uint32_t block;
		/* std heaps put the greatest on top. */
		bool operator<(const Victim &b) const
		{
			return worth != b.worth ? worth > b.worth : used > b.used;
		}
	};

	void use_one(uint32_t block);
	void enter(uint32_t block, uint32_t parent);
	void leave(uint32_t block);
	void make_room();
	void sort_leaves();
	void add_leaf(uint32_t block);
	void remove_leaf(uint32_t block);
	void learn();
	[[nodiscard]] Victim victim(uint32_t block) const;
	[[nodiscard]] uint64_t age_ms(const Block &block) const;

	uint32_t capacity_;
	uint32_t nr_resident_ = 0;
	uint64_t start_ms_ = 0; /* of the caller's clock, at the first use */
	uint64_t now_ms_ = 0;   /* since then */
	uint32_t learned_ = 0;  /* tick */
	uint64_t nr_uses_ = 0;  /* since then */
	std::vector<Block> blocks_;
	std::vector<uint32_t> known_, leaves_;
	std::vector<Victim> heap_;
	bool sorted_ = false; /* all leaves are in the heap */
	size_t nr_left_ = 0;  /* blocks that left since the heap was made */
	ReuseModel model_{half_life_ms};
};

} // namespace cxlkv
