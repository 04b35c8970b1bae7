/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cxlkv {

namespace {

constexpr uint64_t tick_ms = 8;
constexpr uint64_t max_ms = UINT32_MAX * tick_ms; /* 13 months; after that time stands still */
/* The model learns anew when this share of the known blocks was used, so that it costs O(1) a use.
 */
constexpr uint64_t learn_share = 4;
/* Worths change with age: all leaves are looked at again when this share of them has left. */
constexpr size_t sort_share = 4;

/* Blocks are told apart by how often they were used, and by the gap between their last two uses. */
constexpr unsigned nr_count_classes = 5; /* 2-3, 4-7, 8-15, 16-31, more uses */
constexpr unsigned nr_gap_classes = 8;   /* a factor of 5.7 each, from 6 ms to an hour */
static_assert(1 + nr_count_classes * nr_gap_classes <= ReuseModel::nr_kinds);

ReuseModel::Kind kind_of(uint32_t nr_uses, uint64_t gap_ms)
{
	if (nr_uses < 2)
		return 0;
	unsigned count = std::min<unsigned>(nr_count_classes, std::bit_width(nr_uses) - 1) - 1;
	unsigned gap = static_cast<unsigned>(std::log2(static_cast<double>(gap_ms) + 1) / 2.5);
	return static_cast<ReuseModel::Kind>(1 + count * nr_gap_classes +
					     std::min(gap, nr_gap_classes - 1));
}

} // namespace

uint32_t PrefixCache::use(std::span<const uint32_t> chain, uint64_t now_ms)
{
	uint32_t hits = 0, parent = none;
	if (blocks_.empty())
		start_ms_ = now_ms;
	now_ms_ = std::clamp(now_ms - std::min(now_ms, start_ms_), now_ms_, max_ms);
	for (uint32_t block : chain) {
		if (block >= blocks_.size())
			blocks_.resize(std::max<size_t>(size_t{block} + 1, blocks_.size() * 2));
		use_one(block);
		if (blocks_[block].resident)
			hits++;
		else
			enter(block, parent);
		parent = block;
	}
	/* Only the end of the chain can be a leaf; what the heap says of it is old. */
	if (parent != none && blocks_[parent].leaf != none) {
		heap_.push_back(victim(parent));
		std::push_heap(heap_.begin(), heap_.end());
	}
	if (nr_uses_ * learn_share > known_.size())
		learn();
	make_room();
	return hits;
}

void PrefixCache::use_one(uint32_t block)
{
	Block &b = blocks_[block];
	uint64_t age = age_ms(b);
	if (b.nr_uses) {
		model_.watched(b.kind, learned_ > b.used ? (learned_ - b.used) * tick_ms : 0, age);
		model_.used(b.kind, age);
	} else {
		known_.push_back(block);
	}
	b.nr_uses = static_cast<uint8_t>(std::min(b.nr_uses + 1, 255));
	b.kind = kind_of(b.nr_uses, age);
	b.used = static_cast<uint32_t>(now_ms_ / tick_ms);
	nr_uses_++;
}

void PrefixCache::learn()
{
	for (uint32_t block : known_) {
		const Block &b = blocks_[block];
		model_.watched(b.kind, learned_ > b.used ? (learned_ - b.used) * tick_ms : 0,
			       age_ms(b));
	}
	model_.learn(now_ms_);
	learned_ = static_cast<uint32_t>(now_ms_ / tick_ms);
	nr_uses_ = 0;
	sorted_ = false; /* by worths that were believed before */
}

void PrefixCache::enter(uint32_t block, uint32_t parent)
{
	Block &b = blocks_[block];
	b.resident = true;
	b.parent = parent;
	nr_resident_++;
	if (parent != none && blocks_[parent].nr_children++ == 0)
		remove_leaf(parent);
	add_leaf(block);
}

void PrefixCache::leave(uint32_t block)
{
	Block &b = blocks_[block];
	remove_leaf(block);
	b.resident = false;
	nr_resident_--;
	nr_left_++;
	if (b.parent != none && --blocks_[b.parent].nr_children == 0) {
		add_leaf(b.parent);
		heap_.push_back(victim(b.parent));
		std::push_heap(heap_.begin(), heap_.end());
	}
}

void PrefixCache::make_room()
{
	while (nr_resident_ > capacity_) {
		if (!sorted_ || heap_.empty() || nr_left_ * sort_share > leaves_.size())
			sort_leaves();
		std::pop_heap(heap_.begin(), heap_.end());
		Victim old = heap_.back();
		heap_.pop_back();
		const Block &b = blocks_[old.block];
		if (!b.resident || b.leaf == none || b.used != old.used)
			continue;
		Victim now = victim(old.block);
		if (now.worth > old.worth && !heap_.empty() && now < heap_.front()) {
			heap_.push_back(now);
			std::push_heap(heap_.begin(), heap_.end());
			continue;
		}
		leave(old.block);
	}
}

void PrefixCache::sort_leaves()
{
	heap_.clear();
	for (uint32_t block : leaves_)
		heap_.push_back(victim(block));
	std::make_heap(heap_.begin(), heap_.end());
	nr_left_ = 0;
	sorted_ = true;
}

void PrefixCache::add_leaf(uint32_t block)
{
	blocks_[block].leaf = static_cast<uint32_t>(leaves_.size());
	leaves_.push_back(block);
}

void PrefixCache::remove_leaf(uint32_t block)
{
	uint32_t at = blocks_[block].leaf;
	if (at == none)
		return;
	leaves_[at] = leaves_.back();
	blocks_[leaves_[at]].leaf = at;
	leaves_.pop_back();
	blocks_[block].leaf = none;
}

PrefixCache::Victim PrefixCache::victim(uint32_t block) const
{
	const Block &b = blocks_[block];
	return {model_.worth(b.kind, age_ms(b)), b.used, block};
}

uint64_t PrefixCache::age_ms(const Block &block) const
{
	return now_ms_ - std::min(now_ms_, block.used * tick_ms);
}

} // namespace cxlkv
