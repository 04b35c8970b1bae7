/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/victim_queue.h"

#include <bit>

namespace cxlkv {

/* ---- StepWheel ---- */

StepWheel::Bucket StepWheel::bucket_of(uint32_t step, uint32_t now)
{
	unsigned level = 0;
	while ((now >> shift(level)) - (step >> shift(level)) >= size(level))
		level++;
	return {level, step >> shift(level)};
}

void StepWheel::set_used(const Bucket &at, bool used)
{
	uint64_t bit = uint64_t{1} << (slot(at) % 64);
	uint64_t &word = used_[slot(at) / 64];
	word = used ? word | bit : word & ~bit;
}

/* Of the indices low..high of a level, which it holds all at once. */
bool StepWheel::first_used(unsigned level, uint32_t low, uint32_t high, uint32_t &index) const
{
	while (low <= high) {
		uint32_t at = slot({level, low});
		if (uint64_t word = used_[at / 64] >> (at % 64)) {
			index = low + static_cast<uint32_t>(std::countr_zero(word));
			return index <= high;
		}
		low += 64 - at % 64;
	}
	return false;
}

bool StepWheel::next(const Bucket &after, uint32_t now, Bucket &found) const
{
	unsigned level = after.level == nr_levels ? nr_levels - 1 : after.level;
	for (;; level--) {
		uint32_t high = now >> shift(level);
		uint32_t low = high < size(level) ? 0 : high - size(level) + 1;
		if (level == after.level)
			low = after.index + 1;
		if (first_used(level, low, high, found.index)) {
			found.level = level;
			return true;
		}
		if (!level)
			return false;
	}
}

/* From the oldest level on, so that a place is free before something moves there. */
void StepWheel::advance(ChunkPool &pool, uint32_t from, uint32_t to)
{
	for (unsigned level = nr_levels; level-- > 0;) {
		uint32_t before = from >> shift(level), now = to >> shift(level);
		if (now == before || now < size(level))
			continue;
		uint32_t low = before < size(level) ? 0 : before - size(level) + 1;
		uint32_t high = std::min(before, now - size(level));
		for (Bucket old{level, 0}; first_used(level, low, high, old.index);
		     low = old.index + 1) {
			Bucket wider = bucket_of(old.first_step(), to);
			pool.append(list(wider), list(old));
			set_used(old, false);
			set_used(wider, true);
		}
	}
}

/* ---- VictimQueue ---- */

void VictimQueue::advance(uint32_t now)
{
	if (now == now_)
		return;
	for (auto &band : wheels_)
		for (auto &wheel : band)
			if (wheel)
				wheel->advance(pool_, now_, now);
	now_ = now;
}

StepWheel &VictimQueue::wheel(Band band, uint8_t kind)
{
	auto &kinds = wheels_[band];
	if (kind >= kinds.size())
		kinds.resize(size_t{kind} + 1);
	if (!kinds[kind])
		kinds[kind] = std::make_unique<StepWheel>();
	return *kinds[kind];
}

void VictimQueue::push(const Place &at, uint32_t block, uint32_t now)
{
	advance(now);
	StepWheel &wheel = this->wheel(at.band, at.kind);
	StepWheel::Bucket bucket = StepWheel::bucket_of(at.step, now);
	pool_.push(wheel.list(bucket), block);
	wheel.set_used(bucket, true);
	changed_ |= uint64_t{1} << at.kind;
	nr_++;
}

/*
 * They go to lists all over the wheels, and each push would wait twice for
 * memory, for the list and for its chunk: all wait at once instead.
 */
void VictimQueue::put_right()
{
	auto list = [this](const Strayed &s) -> ChunkPool::List & {
		return wheel(s.at.band, s.at.kind).list(StepWheel::bucket_of(s.at.step, now_));
	};
	for (const Strayed &s : strayed_)
		__builtin_prefetch(&list(s), 1);
	for (const Strayed &s : strayed_)
		pool_.push_soon(list(s));
	for (const Strayed &s : strayed_)
		push(s.at, s.block, now_);
	nr_ -= strayed_.size();
	strayed_.clear();
}

} // namespace cxlkv
