/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The cold tier: blocks by key on a file or block device, through one io_uring
 * that the calling thread owns. Asynchronous: write() and read() take a buffer
 * from the store's registered bounce pool, poll() hands completions out. Not
 * thread-safe. What is returned was verified (key, generation, CRC32C); all
 * else is an error, never other bytes.
 */
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace cxlkv {

class BlockIo;

struct StoreOptions {
	std::string path = "/var/lib/cxl-kv/spill"; /* file or block device */
	std::vector<std::string> more_paths;        /* more of them; blocks are spread over all */
	uint64_t size_bytes = 0;          /* hard cap of all together; each has an equal part */
	uint32_t queue_depth = 32;        /* I/Os in flight */
	uint32_t extent_bytes = 1u << 20; /* largest I/O; a bounce buffer holds one */
	uint32_t nr_buffers = 32;
	uint64_t write_bytes_per_s = 0; /* cap of write() for the device's endurance; 0 = none */

	/* What becomes of old contents before their room is used again. */
	enum class Wipe : uint8_t {
		None,    /* they stay until overwritten */
		Discard, /* the device is told that they are not needed */
		Secure,  /* gone for good: discarded by a device that promises zeroes, else
			    overwritten */
	};
	Wipe wipe = Wipe::None;
};

/* Name of a block in the store. arena is the arena's secret key, not its number. */
struct BlockKey {
	uint64_t arena = 0;
	uint32_t block = 0;
	bool operator==(const BlockKey &) const = default;
};

/* A bounce buffer: extent_bytes long, page-aligned, registered with the ring. */
struct Bounce {
	std::byte *data = nullptr;
	uint32_t index = 0;
};

/* A block as a read found it. */
struct StoredBlock {
	uint32_t at = 0; /* in the buffer */
	uint32_t bytes = 0;
	uint32_t format = 0; /* as it was given to write() */
};

struct StoreCompletion {
	uint64_t tag = 0;
	bool write = false;
	Bounce buffer;
	/* For each block of the request, in order: 0, or EIO (device), EBADMSG (failed
	 * verification), ENOENT (no record), ENOSPC. */
	std::vector<int> results;
	/* Of a read, the good blocks. Of format 0 they are in the buffer at i * block_bytes. */
	std::vector<StoredBlock> blocks;
};

struct StoreStats {
	uint64_t used_bytes = 0, capacity_bytes = 0;
	uint64_t nr_records = 0;
	uint64_t user_bytes = 0; /* taken by write() */
	uint64_t written_bytes = 0,
		 read_bytes = 0;    /* to the device, upkeep included; read() only */
	uint64_t cleaned_bytes = 0; /* of written_bytes, blocks moved to make room */
	uint64_t unwiped_bytes = 0; /* segments with dropped contents that are to be wiped */
	uint64_t nr_checkpoints = 0, nr_throttled = 0;
	uint64_t nr_evicted = 0; /* blocks left out by open(), because the cap was lowered */
	uint64_t nr_checksum_failures = 0, nr_io_errors = 0, nr_no_space = 0;

	[[nodiscard]] uint64_t nr_failures() const
	{
		return nr_checksum_failures + nr_io_errors + nr_no_space;
	}
};

class SpillStore {
public:
	/* For tests: puts something between the store and its ring. */
	using IoWrapper = std::function<std::unique_ptr<BlockIo>(std::unique_ptr<BlockIo>)>;

	/* Opens or creates, locks, recovers the index. EBUSY: another process holds it. */
	static Result<std::unique_ptr<SpillStore>> open(const StoreOptions &options,
							const IoWrapper &wrap = {});
	~SpillStore();
	SpillStore(const SpillStore &) = delete;
	SpillStore &operator=(const SpillStore &) = delete;

	/* A free bounce buffer, or data == nullptr: poll first. */
	Bounce take_buffer();
	void give_buffer(Bounce buffer);

	/* Copies nr blocks of a write, from the one at i on, to where the store has room; 0 or an
	 * errno. */
	using Fill = std::function<int(uint32_t i, uint32_t nr, std::byte *to)>;
	/*
	 * Write nr blocks, buffer.data + i * block_bytes is block first + i of the
	 * arena. The store computes checksums. With fill the buffer is empty:
	 * blocks are copied within this call, a few at a time just before their
	 * checksums, while a cache has them. When the write is complete the buffer has the bytes of
	 * every block whose result is 0.
	 *
	 * The records count only after commit(), which the caller calls when the block
	 * has really left memory; abandon() frees them; until then the caller must
	 * still have the bytes. At once, and nothing is written: ENOSPC no room, EAGAIN
	 * over the write rate, EIO the device fails or its file could not be opened, or
	 * what fill says. format is kept with the records and means nothing to the
	 * store, but that blocks of another than 0 may be of any size.
	 */
	Result<> write(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes,
		       uint32_t generation, Bounce buffer, uint64_t tag, uint32_t format = 0,
		       const Fill &fill = {});
	/*
	 * Read nr adjacent blocks into the buffer, block_bytes of room for each; one I/O
	 * where they are adjacent on the device. Records of format 0 must be exactly that
	 * long, others at most, else EBADMSG.
	 */
	Result<> read(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes,
		      Bounce buffer, uint64_t tag);

	/* The block's newest written record becomes the one that read() returns. */
	void commit(BlockKey key);
	/* Forget a record written but not committed. */
	void abandon(BlockKey key);
	/*
	 * Forget the block for good: a tombstone, so that no older record returns after
	 * a restart. It is on the device once nr_in_flight() has been 0. With Wipe::Secure
	 * the block's bytes are wiped then, also after a crash; unwiped_bytes tells when.
	 */
	void drop(BlockKey key);
	/* Forget all of the arena; likewise. */
	void drop_arena(uint64_t arena);
	/* Of which it has records; after a restart, of whom nobody may ask for them any more. */
	[[nodiscard]] std::set<uint64_t> arenas() const;
	/* True when a committed record exists; after a restart, what recovery found. */
	[[nodiscard]] bool contains(BlockKey key) const;

	/* Readable when completions wait. */
	[[nodiscard]] int event_fd() const;
	/* Some of the completions that are ready, event_fd() stays readable for the rest; never
	 * blocks. */
	std::vector<StoreCompletion> poll();
	[[nodiscard]] uint32_t nr_in_flight() const;

	/* Waits for I/O in flight, then makes the index durable: the next open() need not search.
	 */
	Result<> sync();
	[[nodiscard]] StoreStats stats() const;

private:
	struct Impl;
	explicit SpillStore(std::unique_ptr<Impl> impl);
	std::unique_ptr<Impl> impl_;
};

} // namespace cxlkv
