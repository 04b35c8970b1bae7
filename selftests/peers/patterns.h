/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What engines do to KV memory, interval by interval: which blocks are made,
 * which are read and in what order, and which ones the best placement would have
 * in the hot node. Pure: the same pattern and seed give the same work, whoever
 * tiers the memory meanwhile.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cxlkv::peers {

/* One layer of KV heads with blocks of 32 tokens, 128 elements of two bytes: 16 KiB. */
struct Shape {
	static constexpr uint32_t block_bytes = 16u << 10, tokens_per_block = 32;
	static constexpr uint32_t nr_heads = 4;

	uint32_t nr_slots = 1;
	uint32_t blocks_per_head = 0;

	[[nodiscard]] uint32_t blocks_per_slot() const { return nr_heads * blocks_per_head; }
	[[nodiscard]] uint32_t nr_blocks() const { return nr_slots * blocks_per_slot(); }
	[[nodiscard]] uint64_t bytes() const { return uint64_t{nr_blocks()} * block_bytes; }
	/* As an arena lays them out: [slot][head][block]. */
	[[nodiscard]] uint32_t at(uint32_t slot, uint32_t head, uint32_t block) const
	{
		return (slot * nr_heads + head) * blocks_per_head + block;
	}
};

/* Blocks first..first+nr-1 of one head of one slot. */
struct Run {
	uint32_t first = 0, nr = 0;
};

struct Interval {
	uint32_t slot = 0;          /* whose steps these are */
	bool prefills = false;      /* what it makes is a prompt, not the next tokens */
	bool jumped = false;        /* the hot set is another one than in the interval before */
	std::vector<Run> made;      /* written before anything is read */
	std::vector<uint32_t> read; /* blocks, in order */
	std::vector<uint32_t> step_ends; /* decode steps: indices in read */
	std::vector<uint32_t> hot;       /* sorted; what the hot node should hold */
};

class Pattern {
public:
	virtual ~Pattern() = default;
	[[nodiscard]] virtual Shape shape() const = 0;
	[[nodiscard]] virtual uint32_t nr_intervals() const = 0;
	/* Made before the first interval. */
	[[nodiscard]] virtual std::vector<Run> before() const = 0;
	/* In order, each once. */
	virtual Interval next() = 0;
};

struct PatternKind {
	const char *name, *what;
	/* The same work in each interval: what a tiering system moves has to be worth it. */
	bool steady;
	/* hot_bytes: what the hot node has room for. */
	std::unique_ptr<Pattern> (*make)(uint64_t seed, uint64_t hot_bytes);
};

const std::vector<PatternKind> &pattern_kinds();

} // namespace cxlkv::peers
