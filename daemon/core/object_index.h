/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The writer's side of a namespace's index (include/cxl_kv_shared.h): which
 * keys are there, in which tier, and what was stored and removed. Works on
 * memory that others read while it writes; one writer.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cxl_kv_shared.h>
#include <optional>

namespace cxlkv {

struct ObjectKey {
	std::array<uint64_t, CXL_KV_SHARED_KEY_BYTES / 8> key{};
	uint32_t group = 0;

	bool operator==(const ObjectKey &) const = default;
	[[nodiscard]] uint64_t hash() const { return cxl_kv_index_hash(key.data(), group); }
};

struct ObjectKeyHash {
	size_t operator()(const ObjectKey &key) const { return key.hash(); }
};

class ObjectIndex {
public:
	/* Slots for so many objects: at most half of them are ever used, so probes stay short. */
	[[nodiscard]] static uint64_t slots_for(uint64_t nr_objects);

	/* memory: cxl_kv_index_bytes(nr_slots) zeroed bytes, page-aligned; outlives this. */
	ObjectIndex(std::byte *memory, uint64_t nr_slots);

	/* Its slot, by which it is named from then on; none: no place within the probes allowed. */
	std::optional<uint32_t> insert(const ObjectKey &key);
	void remove(uint32_t slot);
	void set_state(uint32_t slot, cxl_kv_index_state state);
	void set_tier(uint32_t slot, uint8_t tier);

	void publish_event(const ObjectKey &key, uint32_t kind);
	/* A load from the tier took so long: the mean that clients estimate by. */
	void note_load(uint8_t tier, uint64_t ns);

private:
	[[nodiscard]] uint64_t load(uint32_t slot) const;
	void store(uint32_t slot, uint64_t word);
	void add_passed(const ObjectKey &key, uint32_t slot, int64_t change);

	cxl_kv_index_header *header_;
	cxl_kv_index_slot *slots_;
	cxl_kv_index_event *events_;
	uint64_t mask_;
};

} // namespace cxlkv
