/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's side of one client arena: its files, its mapping, and the
 * daemon's own record of where each block is. The client's shared state table
 * is only written for it to read; nothing in it is believed but lease counts.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "core/types.h"
#include "sys/cold_format.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

namespace cxlkv {

/* Files of an arena as a client or the module hands them over. */
struct ArenaFiles {
	Fd memory; /* memfd of geometry.bytes(), sealed against shrinking, growing and sealing */
	Fd uffd;   /* userfaultfd of the client's mm */
	Fd table;  /* memfd, one __u64 a block, sealed likewise */
	Fd ring;   /* RingKeeper::Client: memfd, struct cxl_kv_ring and entries, sealed likewise */
};

/* Who has the hint ring: the client shares its own with us, or the module drains it. */
enum class RingKeeper : uint8_t { Client, Module };

struct ArenaOptions {
	uint32_t number = 0;       /* ours, small, shown to people */
	uint64_t key = 0;          /* secret name of its records in the store */
	pid_t pid = 0;             /* client, from the socket's peer credentials */
	uint64_t client_base = 0;  /* address of the mapping in the client */
	uint32_t ring_entries = 0; /* RingKeeper::Client: power of two */
	RingKeeper ring = RingKeeper::Client;
	std::string name;
};

class Arena {
public:
	/*
	 * Validates every file (kind, seals, size) and maps: memory with the
	 * SIGBUS guard, DONTFORK, NOHUGEPAGE and mlock-on-fault (protocol.md,
	 * set-up 5), table and ring. EPERM, EINVAL or ENOMEM with what is wrong.
	 */
	static Result<std::shared_ptr<Arena>> create(const Geometry &geometry, ArenaFiles files,
						     ArenaOptions options);

	const Geometry geometry;
	const ArenaOptions options;

	[[nodiscard]] int memory_fd() const { return files_.memory.get(); }
	[[nodiscard]] int uffd() const { return files_.uffd.get(); }
	/*
	 * The daemon's mapping. A hole in it is SIGBUS to a load, EFAULT to a system
	 * call; and the client can punch holes whenever it likes, so touch it by
	 * system calls only (MADV_POPULATE_READ, pread of the memfd).
	 */
	[[nodiscard]] std::byte *base() const { return memory_.data(); }
	[[nodiscard]] uint64_t offset(uint32_t block) const
	{
		return uint64_t{block} * geometry.block_bytes;
	}
	[[nodiscard]] uint64_t client_address(uint32_t block) const
	{
		return options.client_base + offset(block);
	}

	/* The shared word. The client may have written anything here. */
	[[nodiscard]] std::atomic<uint64_t> &word(uint32_t block) const { return words_[block]; }
	[[nodiscard]] bool leased(uint32_t block) const
	{
		return words_[block].load(std::memory_order_acquire) & CXL_KV_WORD_LEASES_MASK;
	}
	/* Tells the client, and leaves the lease count as it is. */
	void publish(uint32_t block, cxl_kv_state state, bool clean = false);
	/* The same in one step with the check that nobody holds a lease; false, and no change, if
	 * one does. */
	[[nodiscard]] bool publish_unleased(uint32_t block, cxl_kv_state state);

	/*
	 * Makes every lease a third of the limit older; for calls at that distance. How many
	 * leases were too old, and ended.
	 */
	uint64_t age_leases();

	/*
	 * At most max new hints, each copied once and then validated; what was
	 * garbage is counted and left out. Policy thread only.
	 */
	std::vector<cxl_kv_hint> drain_hints(size_t max);
	/* The same for hints that the module handed out: counts them, leaves out what is garbage.
	 */
	std::vector<cxl_kv_hint> accept_hints(std::vector<cxl_kv_hint> hints);

	/*
	 * Where the daemon knows the block to be. Written by the I/O thread
	 * (Cold, Lost, Empty, and Hot on restore) and by the mover (Hot <-> Warm)
	 * while it holds the block busy; read by anyone.
	 */
	[[nodiscard]] Where where(uint32_t block) const
	{
		return static_cast<Where>(where_[block].load(std::memory_order_acquire) &
					  ~busy_bit);
	}
	void set_where(uint32_t block, Where where); /* also the word's TIER */
	/* Claims a block for a move or a spill: false when somebody has it. The other one waits or
	 * gives up. */
	bool try_busy(uint32_t block);
	void clear_busy(uint32_t block);

	/* The tier that new pages of a session are made in; see sys/placement.h. */
	[[nodiscard]] Where placement(uint32_t slot) const
	{
		return static_cast<Where>(placement_[slot].load(std::memory_order_acquire));
	}
	void set_placement(uint32_t slot, Where where)
	{
		placement_[slot].store(static_cast<uint8_t>(where), std::memory_order_release);
	}

	struct Bytes {
		std::atomic<uint64_t> hot{0}, warm{0}, cold{0}, lost{0};
	};
	Bytes bytes; /* kept by set_where() */

	/* Whose it is, and what all of his arenas may have in memory; set by the control thread. */
	std::atomic<uint32_t> tenant{0};
	std::atomic<uint64_t> tenant_limit_bytes{UINT64_MAX};

	std::atomic<uint64_t> nr_hints{0}, nr_bad_hints{0};

	/* What its blocks are written to the store as from now on. Where that does not fit the
	 * geometry, as they are. */
	std::atomic<ColdFormat> cold_format{ColdFormat::Raw};
	HeadErrors head_errors{geometry.nr_heads()};
	std::atomic<uint64_t> nr_encoded{0};     /* blocks spilled in such a format */
	std::atomic<uint64_t> nr_not_encoded{0}; /* and those that had to be spilled as they are */

private:
	static constexpr uint8_t busy_bit = 0x80;

	Arena(const Geometry &arena_geometry, ArenaFiles files, ArenaOptions arena_options);
	Result<> map_memory();
	Result<> map_shared();
	[[nodiscard]] bool hint_ok(const cxl_kv_hint &hint) const;

	ArenaFiles files_;
	Mapping memory_, table_, ring_;
	Fd guard_;
	std::atomic<uint64_t> *words_ = nullptr;
	std::unique_ptr<std::atomic<uint8_t>[]> placement_; /* Where, one a slot */
	std::unique_ptr<std::atomic<uint8_t>[]> where_;     /* Where | busy bit 0x80 */
};

} // namespace cxlkv
