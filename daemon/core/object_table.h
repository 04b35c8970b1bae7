/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The books of keyed objects: which there are, which chunks of the pool hold
 * each, who uses, locks or pins it, what a tenant has, and which leaves first
 * when there is no room. Knows nothing of memory, files or clients but their
 * numbers; time is passed in.
 */
#pragma once

#include "core/object_index.h"
#include "core/types.h"

#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

namespace cxlkv {

/* Free chunks, as runs: an object gets adjacent ones where there are, so its I/O is one. */
class ChunkSpace {
public:
	explicit ChunkSpace(uint32_t nr) : nr_free_(nr) { runs_[0] = nr; }

	[[nodiscard]] uint32_t nr_free() const { return nr_free_; }
	/* Empty where there are not as many. */
	std::vector<uint32_t> take(uint32_t nr);
	/* Exactly this one: after a restart. False: it is taken. */
	bool take_one(uint32_t chunk);
	void give(uint32_t chunk);

private:
	std::map<uint32_t, uint32_t> runs_; /* first -> number */
	uint32_t nr_free_;
};

struct Object {
	enum class State : uint8_t {
		Making, /* reserved; its chunks are not in memory yet */
		Open,   /* reserved; may be written */
		Ready,  /* committed: sealed, found, may be loaded */
		Gone,   /* no longer found; its chunks are still on their way back */
	};
	struct Lock {
		uint64_t client, owner, until_ns;
	};
	struct Chunk {
		uint32_t block = 0;
		uint64_t checksum = 0;
	};

	uint64_t id = 0;
	uint32_t space = 0; /* number of its namespace */
	ObjectKey key;
	uint32_t bytes = 0;
	uint32_t slot = 0; /* in the index */
	State state = State::Making;
	uint8_t priority = CXL_KV_DEFAULT_PRIORITY;
	std::vector<Chunk> chunks;

	uint64_t client = 0;      /* that reserved it */
	uint64_t job = 0;         /* that reserved it by itself, 0 = the client asked for it */
	uint64_t deadline_ns = 0; /* of the reservation */
	uint64_t nr_written = 0;  /* bytes */

	std::vector<Lock> locks;
	uint64_t pinned_until_ns = 0; /* UINT64_MAX = for ever */
	uint64_t used = 0;            /* order of use, the key of the queue of victims */
	uint32_t nr_users = 0;        /* its reservation, and loads: its chunks are leased */
	bool in_flight = false;       /* its chunks are being made or fetched */
	bool dropping = false;

	[[nodiscard]] bool pending() const
	{
		return state == State::Making || state == State::Open;
	}
	[[nodiscard]] bool locked(uint64_t now_ns) const;
	/* Somebody needs it to stay. */
	[[nodiscard]] bool held(uint64_t now_ns) const
	{
		return nr_users || pinned_until_ns > now_ns || locked(now_ns);
	}
	/* Its chunks as runs of blocks of the arena. */
	[[nodiscard]] std::vector<Extent> extents(uint32_t arena) const;
};

class ObjectTable {
public:
	ObjectTable(uint32_t nr_chunks, uint32_t chunk_bytes)
	    : chunk_bytes_(chunk_bytes), free_(nr_chunks), owner_(nr_chunks)
	{
	}

	[[nodiscard]] Object *find(uint32_t space, const ObjectKey &key);
	[[nodiscard]] Object *find(uint64_t id);
	/* Whose chunk it is, or null. */
	[[nodiscard]] Object *owner(uint32_t chunk) const { return owner_[chunk]; }

	/*
	 * A new object in state Making. ENOSPC: too few chunks are free, EDQUOT: the
	 * tenant would have more than it may; a victim() has to go first. EFBIG:
	 * never. The key must not be there.
	 */
	int reserve(uint32_t space, uint64_t tenant, const ObjectKey &key, uint32_t bytes,
		    Object **out);
	/* As it was before a restart, Ready; null when a chunk is taken or out of range. */
	Object *recover(uint32_t space, uint64_t tenant, const ObjectKey &key, uint32_t bytes,
			const std::vector<Object::Chunk> &chunks);
	void commit(Object &object);
	void touch(Object &object);
	void set_priority(Object &object, uint8_t priority);
	/* The lowest priority, of these the longest unused, that nobody needs; of the tenant where
	 * it is not 0. Null: all are held. */
	[[nodiscard]] Object *victim(uint64_t tenant, uint64_t now_ns) const;

	/* State Gone: not found any more. */
	void unlink(Object &object);
	/* Its chunks are free, and it is no more. */
	void release(Object &object);

	/* Locks are by client and owner: taking one again only moves its end. */
	static void lock(Object &object, uint64_t client, uint64_t owner, uint64_t until_ns);
	static void unlock(Object &object, uint64_t client, uint64_t owner);
	/* What a client leaves behind: its locks go; returns its reservations, for the caller to
	 * abort. */
	std::vector<Object *> forget_client(uint64_t client);

	struct Usage {
		uint64_t bytes = 0, quota_bytes = 0; /* of whole chunks; quota 0 = no limit */
	};
	[[nodiscard]] Usage usage(uint64_t tenant) const;
	void set_quota(uint64_t tenant, uint64_t bytes) { tenants_[tenant].quota_bytes = bytes; }

	[[nodiscard]] std::vector<Object *> all() const;
	[[nodiscard]] uint32_t nr_free_chunks() const { return free_.nr_free(); }
	[[nodiscard]] uint32_t nr_chunks() const { return static_cast<uint32_t>(owner_.size()); }
	[[nodiscard]] size_t nr_objects() const { return objects_.size(); }

private:
	using Rank = std::pair<uint8_t, uint64_t>; /* priority, use */
	struct Owned {
		Object object;
		uint64_t tenant;
	};

	[[nodiscard]] uint32_t chunks_for(uint32_t bytes) const
	{
		return (bytes + chunk_bytes_ - 1) / chunk_bytes_;
	}
	Object &add(uint32_t space, uint64_t tenant, const ObjectKey &key, uint32_t bytes);

	const uint32_t chunk_bytes_;
	ChunkSpace free_;
	std::vector<Object *> owner_; /* by chunk */
	std::unordered_map<uint64_t, std::unique_ptr<Owned>> objects_;
	std::unordered_map<uint32_t, std::unordered_map<ObjectKey, Object *, ObjectKeyHash>>
		spaces_;
	std::map<Rank, Owned *> victims_; /* the Ready ones */
	std::unordered_map<uint64_t, Usage> tenants_;
	uint64_t next_id_ = 1, next_use_ = 1;
};

} // namespace cxlkv
