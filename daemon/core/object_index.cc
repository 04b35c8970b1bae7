/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/object_index.h"

#include <algorithm>
#include <bit>

namespace cxlkv {

namespace {

template <typename T> void relaxed(T &to, T value)
{
	__atomic_store_n(&to, value, __ATOMIC_RELAXED);
}

/* Who reads it sees the sequence that was written before: readers load it with acquire. No fence,
 * which ThreadSanitizer would not know of. */
template <typename T> void after_sequence(T &to, T value)
{
	__atomic_store_n(&to, value, __ATOMIC_RELEASE);
}

cxl_kv_index_state state_of(uint64_t word)
{
	return static_cast<cxl_kv_index_state>((word & CXL_KV_INDEX_STATE_MASK) >>
					       CXL_KV_INDEX_STATE_SHIFT);
}

/* The next sequence, in its own bits: it must not carry into the others. */
uint64_t next_sequence(uint64_t word)
{
	return (word & ~CXL_KV_INDEX_SEQUENCE_MASK) | ((word + 1) & CXL_KV_INDEX_SEQUENCE_MASK);
}

} // namespace

uint64_t ObjectIndex::slots_for(uint64_t nr_objects)
{
	return std::bit_ceil(std::max<uint64_t>(2 * nr_objects, 1024));
}

ObjectIndex::ObjectIndex(std::byte *memory, uint64_t nr_slots)
    : header_(reinterpret_cast<cxl_kv_index_header *>(memory)),
      slots_(reinterpret_cast<cxl_kv_index_slot *>(memory + CXL_KV_INDEX_SLOTS_OFFSET)),
      events_(reinterpret_cast<cxl_kv_index_event *>(slots_ + nr_slots)), mask_(nr_slots - 1)
{
	header_->nr_slots = nr_slots;
	header_->magic = CXL_KV_INDEX_MAGIC;
}

uint64_t ObjectIndex::load(uint32_t slot) const
{
	return __atomic_load_n(&slots_[slot].word, __ATOMIC_RELAXED);
}

void ObjectIndex::store(uint32_t slot, uint64_t word)
{
	__atomic_store_n(&slots_[slot].word, word, __ATOMIC_RELEASE);
}

/* Counts the entry in every slot between its home and its place. */
void ObjectIndex::add_passed(const ObjectKey &key, uint32_t slot, int64_t change)
{
	for (uint64_t at = key.hash() & mask_; at != slot; at = (at + 1) & mask_)
		store(static_cast<uint32_t>(at),
		      load(static_cast<uint32_t>(at)) +
			      static_cast<uint64_t>(change) * (1ull << CXL_KV_INDEX_PASSED_SHIFT));
}

std::optional<uint32_t> ObjectIndex::insert(const ObjectKey &key)
{
	uint64_t at = key.hash() & mask_;

	for (int probe = 0; probe < CXL_KV_INDEX_MAX_PROBES; probe++, at = (at + 1) & mask_) {
		auto slot = static_cast<uint32_t>(at);
		uint64_t word = load(slot);
		if (state_of(word) != CXL_KV_INDEX_FREE)
			continue;
		word = next_sequence(word);
		store(slot, word);
		for (size_t i = 0; i < key.key.size(); i++)
			after_sequence(slots_[slot].key[i], key.key[i]);
		after_sequence(slots_[slot].group, uint64_t{key.group});
		word = next_sequence(word) & ~(CXL_KV_INDEX_STATE_MASK | CXL_KV_INDEX_TIER_MASK);
		store(slot, word | uint64_t{CXL_KV_INDEX_PENDING} << CXL_KV_INDEX_STATE_SHIFT);
		add_passed(key, slot, 1);
		return slot;
	}
	return {};
}

void ObjectIndex::remove(uint32_t slot)
{
	ObjectKey key;

	std::copy_n(slots_[slot].key, key.key.size(), key.key.begin());
	key.group = static_cast<uint32_t>(slots_[slot].group);
	/* A reader between two looks at the word must see that the key was not there throughout. */
	uint64_t word = next_sequence(next_sequence(load(slot)));
	store(slot, word & ~(CXL_KV_INDEX_STATE_MASK | CXL_KV_INDEX_TIER_MASK));
	add_passed(key, slot, -1);
}

void ObjectIndex::set_state(uint32_t slot, cxl_kv_index_state state)
{
	store(slot, (load(slot) & ~CXL_KV_INDEX_STATE_MASK) | uint64_t{state}
								      << CXL_KV_INDEX_STATE_SHIFT);
}

void ObjectIndex::set_tier(uint32_t slot, uint8_t tier)
{
	store(slot,
	      (load(slot) & ~CXL_KV_INDEX_TIER_MASK) | uint64_t{tier} << CXL_KV_INDEX_TIER_SHIFT);
}

void ObjectIndex::publish_event(const ObjectKey &key, uint32_t kind)
{
	uint64_t number = header_->nr_events;
	cxl_kv_index_event &event = events_[number & (CXL_KV_INDEX_NR_EVENTS - 1)];

	relaxed(event.sequence, uint64_t{0});
	for (size_t i = 0; i < key.key.size(); i++)
		after_sequence(event.key[i], key.key[i]);
	after_sequence(event.group, key.group);
	after_sequence(event.kind, kind);
	__atomic_store_n(&event.sequence, number + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&header_->nr_events, number + 1, __ATOMIC_RELEASE);
}

/* Of each new load an eighth: recent ones count, one that had to wait does not upset it. */
void ObjectIndex::note_load(uint8_t tier, uint64_t ns)
{
	if (tier >= std::size(header_->load_ns))
		return;
	uint64_t mean = header_->load_ns[tier];
	mean = mean ? mean - mean / 8 + ns / 8 : ns;
	relaxed(header_->load_ns[tier], std::max<uint64_t>(mean, 1));
}

} // namespace cxlkv
