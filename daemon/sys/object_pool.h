/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The arena that the daemon keeps objects in: it is its own client. What moves,
 * spills and restores the blocks of engines does the same with the chunks of
 * objects; a chunk that is read or written holds a lease. Its memory is only
 * touched by pread and pwrite of the file, which no hole can stop.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "sys/arena.h"

#include <functional>
#include <memory>
#include <span>

namespace cxlkv {

class ObjectPool {
public:
	/* Name of its records in the store; no client's arena may have it. */
	static constexpr uint64_t key = 0x636f626a65637473;

	/* has_record: chunks that the store should have from before. */
	static Result<std::unique_ptr<ObjectPool>>
	create(uint32_t nr_chunks, uint32_t chunk_bytes,
	       const std::function<bool(uint32_t)> &has_record);

	/* What the registry needs to serve it as any other arena. */
	[[nodiscard]] const Geometry &geometry() const { return geometry_; }
	[[nodiscard]] Result<ArenaFiles> files() const;
	[[nodiscard]] ArenaOptions options() const;

	void lease(uint32_t block) const;
	void unlease(uint32_t block) const;
	[[nodiscard]] cxl_kv_state state(uint32_t block) const;
	[[nodiscard]] uint8_t tier(uint32_t block) const;

	/* Under a lease and in memory. 0 or an errno. */
	[[nodiscard]] int read(uint32_t block, std::span<std::byte> into) const;
	[[nodiscard]] int write(uint32_t block, uint32_t offset,
				std::span<const std::byte> from) const;

	/* Tells the policy what attention blocks had (65535 = all of it), or how much they are to
	 * be kept (for a while, or with 0 until told otherwise). */
	void hint_score(const Extent &extent, uint16_t score) const;
	void hint_priority(const Extent &extent, uint8_t priority, uint32_t lifetime_ms) const;

private:
	explicit ObjectPool(const Geometry &geometry) : geometry_(geometry) {}
	Result<> make_files();
	void hint(cxl_kv_hint hint, const Extent &extent) const;
	[[nodiscard]] std::atomic<uint64_t> &word(uint32_t block) const
	{
		return reinterpret_cast<std::atomic<uint64_t> *>(table_.data())[block];
	}

	static constexpr uint32_t ring_entries = 4096;

	const Geometry geometry_;
	ArenaFiles files_;
	Mapping memory_, table_, ring_;
};

} // namespace cxlkv
