/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks of one tier in the order in which they should leave it: in buckets by
 * band, kind and the step of their last access. Within a kind the oldest leaves
 * first; which kind's oldest is next, the caller ranks.
 *
 * Steps only grow, so a block that is touched is not moved: its one entry stays
 * where it is and is put right when a scan comes upon it. Touching is free, and
 * a scan pays for what was touched since the last one, not for what exists.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cxlkv {

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

	void push(const Place &at, uint32_t block)
	{
		buckets_of(at.band, at.kind)[at.step].push_back(block);
		nr_++;
	}

	[[nodiscard]] size_t nr_entries() const { return nr_; }
	void clear();

	/*
	 * Visits the blocks of a band, a bucket at a time, the lowest rank first.
	 * place(block) -> Place; gone(block) for an entry that is removed;
	 * rank(kind, step) of a bucket; visit(block); more() before each bucket.
	 */
	template <typename PlaceOf, typename Gone, typename Rank, typename Visit, typename More>
	void scan(Band band, PlaceOf place, Gone gone, Rank rank, Visit visit, More more);

private:
	using Buckets = std::map<uint32_t, std::vector<uint32_t>>; /* by step */

	Buckets &buckets_of(Band band, uint8_t kind)
	{
		std::vector<Buckets> &kinds = buckets_[band];
		if (kind >= kinds.size())
			kinds.resize(size_t{kind} + 1);
		return kinds[kind];
	}

	std::vector<Buckets> buckets_[nr_bands]; /* by kind */
	size_t nr_ = 0;
};

inline void VictimQueue::clear()
{
	for (auto &band : buckets_)
		band.clear();
	nr_ = 0;
}

template <typename PlaceOf, typename Gone, typename Rank, typename Visit, typename More>
void VictimQueue::scan(Band band, PlaceOf place, Gone gone, Rank rank, Visit visit, More more)
{
	/* Where the scan stands in each kind: it does not come back to what it has visited. */
	std::vector<uint64_t> from(UINT8_MAX + 1);
	while (more()) {
		Buckets *buckets = nullptr;
		Buckets::iterator next;
		double lowest = 0;
		for (size_t kind = 0; kind < buckets_[band].size(); kind++) {
			Buckets &those = buckets_[band][kind];
			auto first = from[kind] > UINT32_MAX
					     ? those.end()
					     : those.lower_bound(uint32_t(from[kind]));
			if (first == those.end())
				continue;
			double value = rank(uint8_t(kind), first->first);
			if (!buckets || value < lowest) {
				buckets = &those;
				next = first;
				lowest = value;
			}
		}
		if (!buckets)
			return;
		uint8_t kind = static_cast<uint8_t>(buckets - buckets_[band].data());
		uint32_t step = next->first;
		from[kind] = uint64_t{step} + 1;
		/* Taken out: what is put right below may be a bucket of a kind that is new. */
		std::vector<uint32_t> blocks = std::move(next->second);
		buckets->erase(next);
		size_t kept = 0;
		for (uint32_t block : blocks) {
			Place now = place(block);
			if (!now.here) {
				gone(block);
				nr_--;
			} else if (now.band != band || now.kind != kind || now.step != step) {
				buckets_of(now.band, now.kind)[now.step].push_back(block);
			} else {
				blocks[kept++] = block;
				visit(block);
			}
		}
		blocks.resize(kept);
		if (kept)
			buckets_[band][kind][step] = std::move(blocks);
	}
}

} // namespace cxlkv
