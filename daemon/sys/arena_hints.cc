/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading the hint ring of a client that may write anything into it at any
 * time: the number of entries is ours, head is believed only within it, and
 * each entry is copied once before it is looked at.
 */
#include "sys/arena.h"

#include <algorithm>

namespace cxlkv {

namespace {

uint32_t load(const __u32 &field, std::memory_order order)
{
	return std::atomic_ref<__u32>(const_cast<__u32 &>(field)).load(order);
}

void store(__u32 &field, uint32_t value)
{
	std::atomic_ref<__u32>(field).store(value, std::memory_order_release);
}

} // namespace

/* Per kind: fields in range, and those of other kinds zero, so that they can get a meaning later.
 */
bool Arena::hint_ok(const cxl_kv_hint &hint) const
{
	bool pin = hint.kind == CXL_KV_HINT_PIN;
	bool score = hint.kind == CXL_KV_HINT_SCORE;

	if (hint.slot >= geometry.nr_slots || hint.reserved)
		return false;
	if ((!pin && (hint.priority || hint.lifetime_ms)) || hint.priority > CXL_KV_MAX_PRIORITY)
		return false;
	if (!score && hint.score)
		return false;

	switch (hint.kind) {
	case CXL_KV_HINT_SCORE:
	case CXL_KV_HINT_PIN:
	case CXL_KV_HINT_SEAL:
	case CXL_KV_HINT_DROP:
		return hint.head < geometry.nr_heads() && hint.block < geometry.blocks_per_head() &&
		       hint.nr_blocks &&
		       hint.nr_blocks <= geometry.blocks_per_head() - hint.block && !hint.position;
	case CXL_KV_HINT_POSITION:
		return !hint.nr_blocks && hint.position <= geometry.tokens_per_slot;
	case CXL_KV_HINT_PHASE:
		return !hint.nr_blocks && hint.position <= 1;
	case CXL_KV_HINT_PARK:
	case CXL_KV_HINT_WAKE:
		return !hint.nr_blocks && !hint.position;
	default:
		return false;
	}
}

std::vector<cxl_kv_hint> Arena::accept_hints(std::vector<cxl_kv_hint> hints)
{
	nr_bad_hints +=
		std::erase_if(hints, [this](const cxl_kv_hint &hint) { return !hint_ok(hint); });
	nr_hints += hints.size();
	return hints;
}

std::vector<cxl_kv_hint> Arena::drain_hints(size_t max)
{
	auto *ring = reinterpret_cast<cxl_kv_ring *>(ring_.data());
	const auto *entries =
		reinterpret_cast<const cxl_kv_hint *>(ring_.data() + CXL_KV_RING_ENTRIES_OFFSET);
	std::vector<cxl_kv_hint> hints;
	uint64_t nr_bad = 0;

	/*
	 * The tail in the ring is where a predecessor stopped; it is as much the
	 * client's to scribble on as head. More than a ring between the two is
	 * garbage: start again at head.
	 */
	uint32_t head = load(ring->head, std::memory_order_acquire);
	uint32_t tail = load(ring->tail, std::memory_order_relaxed);
	if (head - tail > options.ring_entries) {
		nr_bad++;
		tail = head;
	}

	size_t nr = std::min<size_t>(head - tail, max);
	for (size_t i = 0; i < nr; i++, tail++) {
		cxl_kv_hint hint;
		memcpy(&hint, &entries[tail & (options.ring_entries - 1)], sizeof(hint));
		/* The copy is what is checked and used; keep the compiler from reading the ring
		 * again. */
		std::atomic_signal_fence(std::memory_order_seq_cst);
		if (hint_ok(hint))
			hints.push_back(hint);
		else
			nr_bad++;
	}
	store(ring->tail, tail);
	if (nr_bad)
		store(ring->nr_bad, load(ring->nr_bad, std::memory_order_relaxed) +
					    static_cast<uint32_t>(nr_bad));
	nr_hints += hints.size();
	nr_bad_hints += nr_bad;
	return hints;
}

} // namespace cxlkv
