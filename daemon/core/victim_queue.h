/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks of one tier in the order in which they should leave it: in buckets by
 * band, kind and the step of their last access. Within a kind the oldest leaves
 * first; which kind's oldest is next, the caller ranks.
 *
 * Steps only grow, so a block that is touched is not moved: its one entry stays
 * where it is and is put right when a scan comes upon it. Touching is free, and
 * a scan pays for what was touched since the last one, not for what exists.
 *
 * The buckets are a timing wheel (Varghese and Lauck, SOSP'87) that turns
 * backwards: one a step for the last 2048 steps, beyond that ever wider ones,
 * of 1/8 of the age of their blocks at most.
 */
#pragma once

#include "core/chunk_pool.h"

#include <memory>

namespace cxlkv {

/* The buckets of one kind. */
class StepWheel {
public:
	/* Levels count from the newest; a bucket's first step is its index times its level's width.
	 */
	struct Bucket {
		unsigned level = 0;
		uint32_t index = 0;
		[[nodiscard]] uint32_t first_step() const { return index << shift(level); }
		[[nodiscard]] bool holds(uint32_t step) const
		{
			return step >> shift(level) == index;
		}
	};

	static constexpr unsigned nr_levels = 8;
	static constexpr Bucket before_all{nr_levels, 0};

	StepWheel() : lists_(std::make_unique<ChunkPool::List[]>(nr_slots)) {}

	static Bucket bucket_of(uint32_t step, uint32_t now);
	ChunkPool::List &list(const Bucket &at) { return lists_[slot(at)]; }
	/* To be told when a list becomes empty, and when it no longer is. */
	void set_used(const Bucket &at, bool used);
	/* The oldest bucket in use after that one; false when there is none. */
	bool next(const Bucket &after, uint32_t now, Bucket &found) const;
	/* Time goes from one step to another: moves what becomes too old for its level. */
	void advance(ChunkPool &pool, uint32_t from, uint32_t to);

private:
	static constexpr uint32_t nr_exact = 2048, nr_wide = 64;
	static constexpr unsigned shift(unsigned level) { return level ? 5 + 3 * level : 0; }
	static constexpr uint32_t size(unsigned level) { return level ? nr_wide : nr_exact; }
	/* Of the slots of a level among all. */
	static constexpr uint32_t begin(unsigned level)
	{
		return level ? nr_exact + (level - 1) * nr_wide : 0;
	}
	static uint32_t slot(const Bucket &at)
	{
		return begin(at.level) + at.index % size(at.level);
	}
	bool first_used(unsigned level, uint32_t low, uint32_t high, uint32_t &index) const;

	static constexpr uint32_t nr_slots = nr_exact + (nr_levels - 1) * nr_wide;
	std::unique_ptr<ChunkPool::List[]> lists_;
	uint64_t used_[nr_slots / 64] = {};
};

class VictimQueue {
public:
	/* Order of leaving: a lower band is emptied before the next is looked at. */
	enum Band : uint8_t { Low, Normal, Kept, nr_bands };

	/* What is true of a block now. */
	struct Place {
		bool here; /* still in this tier */
		Band band;
		uint8_t kind;
		uint32_t step;
	};

	explicit VictimQueue(ChunkPool &pool) : pool_(pool) {}

	/* now is the step of the clock: never before that of an earlier call, or of a place. */
	void push(const Place &at, uint32_t block, uint32_t now);

	[[nodiscard]] size_t nr_entries() const { return nr_; }

	/*
	 * Visits the blocks of a band, a bucket at a time, the lowest rank first.
	 * asked.place(block) -> Place; gone(block): its entry is removed;
	 * rank(kind, step) of a bucket; visit(block); more(): another bucket is
	 * wanted; enough(): not even the rest of this one is. Blocks come in any
	 * order, so it is told early what memory will be needed: place_soon(block),
	 * visit_soon(block).
	 */
	template <typename Asked> void scan(Band band, uint32_t now, Asked &asked);

private:
	/* A block whose entry a scan met where it no longer belongs. */
	struct Strayed {
		Place at;
		uint32_t block;
	};

	StepWheel &wheel(Band band, uint8_t kind);
	void advance(uint32_t now);
	void put_right();
	template <typename Asked>
	void scan_bucket(Band band, uint8_t kind, const StepWheel::Bucket &bucket, Asked &asked,
			 std::vector<uint32_t> &kept);
	/*
	 * Walks a list ahead of a scan and tells which places it will ask for: one
	 * for each that is asked, as a core drops what comes all at once.
	 */
	class Lookout {
	public:
		/* The chunk that is looked at is never one that the scan has taken. */
		static constexpr uint32_t ahead = 2 * ChunkPool::per_chunk + 2;

		Lookout(ChunkPool &pool, uint32_t chunk)
		    : pool_(pool), chunk_(chunk), next_(after(chunk))
		{
		}
		template <typename Asked> void place_soon(Asked &asked)
		{
			if (chunk_ == ChunkPool::none)
				return;
			asked.place_soon(pool_[chunk_].blocks[at_++]);
			if (at_ < ChunkPool::per_chunk)
				return;
			at_ = 0;
			chunk_ = next_;
			next_ = after(chunk_);
			if (next_ != ChunkPool::none)
				__builtin_prefetch(&pool_[next_]);
		}

	private:
		uint32_t after(uint32_t chunk)
		{
			return chunk == ChunkPool::none ? chunk : pool_[chunk].next;
		}

		ChunkPool &pool_;
		uint32_t chunk_, next_, at_ = 0;
	};

	static constexpr unsigned max_kinds = 64;
	static constexpr size_t strayed_batch = 64;

	ChunkPool &pool_;
	std::vector<std::unique_ptr<StepWheel>> wheels_[nr_bands]; /* by kind */
	uint64_t changed_ = 0; /* kinds, as bits, in which something was pushed */
	uint32_t now_ = 0;
	size_t nr_ = 0;
	std::vector<Strayed> strayed_; /* during a scan */
};

template <typename Asked> void VictimQueue::scan(Band band, uint32_t now, Asked &asked)
{
	/* Of each kind: where the scan stands, as it does not come back, and what comes next. */
	struct Next {
		StepWheel::Bucket last = StepWheel::before_all, bucket;
		bool any = false;
		double rank = 0;
	};
	std::vector<Next> nexts(max_kinds);
	std::vector<uint32_t> kept;

	advance(now);
	changed_ = ~uint64_t{0};
	while (asked.more()) {
		Next *lowest = nullptr;
		for (size_t kind = 0; kind < wheels_[band].size(); kind++) {
			Next &next = nexts[kind];
			if (changed_ >> kind & 1) {
				const StepWheel *wheel = wheels_[band][kind].get();
				next.any = wheel && wheel->next(next.last, now, next.bucket);
				if (next.any)
					next.rank = asked.rank(static_cast<uint8_t>(kind),
							       next.bucket.first_step());
			}
			if (next.any && (!lowest || next.rank < lowest->rank))
				lowest = &next;
		}
		if (!lowest)
			return;
		uint8_t kind = static_cast<uint8_t>(lowest - nexts.data());
		changed_ = uint64_t{1} << kind;
		lowest->last = lowest->bucket;
		scan_bucket(band, kind, lowest->bucket, asked, kept);
	}
}

template <typename Asked>
void VictimQueue::scan_bucket(Band band, uint8_t kind, const StepWheel::Bucket &bucket,
			      Asked &asked, std::vector<uint32_t> &kept)
{
	StepWheel &wheel = *wheels_[band][kind];
	ChunkPool::List &list = wheel.list(bucket);
	uint32_t blocks[ChunkPool::per_chunk];
	size_t visited = 0;
	Lookout lookout(pool_, list.head);

	kept.clear();
	for (uint32_t i = 0; i < Lookout::ahead; i++)
		lookout.place_soon(asked);
	while (!list.empty() && !asked.enough()) {
		size_t nr_kept = kept.size();
		uint32_t nr = pool_.pop_chunk(list, blocks);
		for (uint32_t i = 0; i < nr; i++) {
			lookout.place_soon(asked);
			Place at = asked.place(blocks[i]);
			if (!at.here) {
				asked.gone(blocks[i]);
				nr_--;
			} else if (at.band != band || at.kind != kind || !bucket.holds(at.step)) {
				strayed_.push_back({at, blocks[i]});
			} else {
				kept.push_back(blocks[i]);
				asked.visit_soon(blocks[i]);
			}
		}
		if (strayed_.size() >= strayed_batch)
			put_right();
		while (visited < nr_kept)
			asked.visit(kept[visited++]);
	}
	put_right();
	while (visited < kept.size())
		asked.visit(kept[visited++]);
	for (size_t i = kept.size(); i-- > 0;)
		pool_.push(list, kept[i]);
	wheel.set_used(bucket, !list.empty());
}

} // namespace cxlkv
