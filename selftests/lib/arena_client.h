/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The client's half of an arena without the library: what the protocol asks of
 * a client and nothing more, so that tests of the fault server see only it.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "sys/arena.h"

#include <atomic>
#include <memory>

namespace cxlkv::test {

/* One head of nr_blocks blocks of 64 KiB in each of nr_slots sessions. */
Geometry small_geometry(uint32_t nr_blocks, uint32_t nr_slots = 1, uint32_t block_bytes = 64 << 10);

class ArenaClient {
public:
	static Result<std::unique_ptr<ArenaClient>> create(const Geometry &geometry);
	/* In another process: send the files and the address over a socket, and take them. */
	Result<> send(int socket) const;
	static Result<std::pair<ArenaFiles, uint64_t>> receive(int socket);

	[[nodiscard]] ArenaFiles files() const; /* duplicates */
	/* The daemon's side of this arena, made from duplicates of the files. */
	Result<std::shared_ptr<Arena>> arena(uint32_t number, uint64_t key) const;

	[[nodiscard]] std::byte *base() const { return memory_.data(); }
	[[nodiscard]] std::atomic<uint64_t> *block64(uint32_t block) const
	{
		return reinterpret_cast<std::atomic<uint64_t> *>(
			base() + uint64_t{block} * geometry.block_bytes);
	}
	[[nodiscard]] std::atomic<uint64_t> &word(uint32_t block) const
	{
		return reinterpret_cast<std::atomic<uint64_t> *>(table_.data())[block];
	}
	[[nodiscard]] cxl_kv_state state(uint32_t block) const
	{
		return static_cast<cxl_kv_state>(word(block).load() & CXL_KV_WORD_STATE_MASK);
	}
	[[nodiscard]] cxl_kv_ring *ring() const
	{
		return reinterpret_cast<cxl_kv_ring *>(ring_.data());
	}
	[[nodiscard]] cxl_kv_hint *hints() const
	{
		return reinterpret_cast<cxl_kv_hint *>(ring_.data() + CXL_KV_RING_ENTRIES_OFFSET);
	}

	void lease(uint32_t block) const { word(block) += CXL_KV_WORD_LEASES_ONE; }
	void unlease(uint32_t block) const { word(block) -= CXL_KV_WORD_LEASES_ONE; }

	/* 64-bit word i of a block's pattern: differs between blocks, rounds and positions. */
	static uint64_t pattern(uint32_t block, uint32_t round, uint32_t i)
	{
		return (uint64_t{round} << 48) + (uint64_t{block} << 20) + i + 1;
	}
	void fill(uint32_t block, uint32_t round) const;
	/* Words of the block that are not its pattern. Touches the block. */
	[[nodiscard]] uint32_t nr_wrong(uint32_t block, uint32_t round) const;
	/* Bytes of memory the arena occupies now. */
	[[nodiscard]] uint64_t resident_bytes() const;

	const Geometry geometry;
	static constexpr uint32_t ring_entries = 64;
	[[nodiscard]] const ArenaFiles &own_files() const { return files_; }

private:
	explicit ArenaClient(Geometry arena_geometry) : geometry(std::move(arena_geometry)) {}

	ArenaFiles files_;
	Mapping memory_, table_, ring_;
};

/* A sealed memfd. seals = 0: the usual ones. */
Result<Fd> sealed_memfd(const char *name, uint64_t bytes, int seals = 0);

/* What a system call that reads 8 bytes there says: 0, or its errno. */
int errno_of_system_call(const void *at);

} // namespace cxlkv::test
