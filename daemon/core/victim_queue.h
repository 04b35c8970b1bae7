/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks of one tier in the order in which they should leave it, in buckets by
 * an integer key (the step of the last access), lowest first.
 *
 * Keys only grow, so a block that is touched is not moved: its one entry stays
 * where it is and is put right when a scan comes upon it. Touching is free, and
 * a scan pays for what was touched since the last one, not for what exists.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cxlkv
{

class VictimQueue
{
public:
	/* Order of leaving: a lower band is emptied before the next is looked at. */
	enum Band : uint8_t { Low, Normal, Kept, nr_bands };

	/* What is true of a block now. */
	struct Place {
		bool here; /* still in this tier */
		Band band;
		uint32_t key;
	};

	void push(Band band, uint32_t key, uint32_t block)
	{
		buckets_[band][key].push_back(block);
		nr_++;
	}

	[[nodiscard]] size_t nr_entries() const { return nr_; }
	void clear();

	/*
	 * Visits blocks, lowest key of the band first, until visit returns false;
	 * that is asked at the end of each bucket, so equals are seen together.
	 * place(block) -> Place; gone(block) for an entry that is removed;
	 * visit(block) for each block; more() at the end of each bucket.
	 */
	template <typename PlaceOf, typename Gone, typename Visit, typename More>
	void scan(Band band, PlaceOf place, Gone gone, Visit visit, More more);

private:
	std::map<uint32_t, std::vector<uint32_t>> buckets_[nr_bands];
	size_t nr_ = 0;
};

inline void VictimQueue::clear()
{
	for (auto &band : buckets_)
		band.clear();
	nr_ = 0;
}

template <typename PlaceOf, typename Gone, typename Visit, typename More>
void VictimQueue::scan(Band band, PlaceOf place, Gone gone, Visit visit, More more)
{
	auto &buckets = buckets_[band];
	for (auto it = buckets.begin(); it != buckets.end() && more();) {
		std::vector<uint32_t> &blocks = it->second;
		size_t kept = 0;
		/* A push below goes to another bucket: std::map keeps this one in place. */
		for (size_t i = 0; i < blocks.size(); i++) {
			uint32_t block = blocks[i];
			Place now = place(block);
			if (!now.here) {
				gone(block);
				nr_--;
			} else if (now.band != band || now.key > it->first) {
				buckets_[now.band][now.key].push_back(block);
			} else {
				blocks[kept++] = block;
				visit(block);
			}
		}
		blocks.resize(kept);
		it = kept ? std::next(it) : buckets.erase(it);
	}
}

} // namespace cxlkv
