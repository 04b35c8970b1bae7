/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The I/O thread: answers userfaultfd events, spills and restores by the
 * protocol of docs/spill-protocol.md. It owns the store and waits for nothing
 * but its own epoll. Other threads talk to it through submit(); answers come
 * back through the request's callback, on the I/O thread, which must not block.
 */
#pragma once

#include "base/histogram.h"
#include "base/result.h"
#include "core/types.h"
#include "sys/arena.h"
#include "sys/spill_store.h"

#include <functional>
#include <memory>
#include <vector>

namespace cxlkv {

/* What became of a request. */
struct Outcome {
	int error = 0;      /* 0, or ENODATA, EIO, EBUSY, ESRCH (client gone), ECANCELED */
	uint32_t block = 0; /* first block that failed */
	uint64_t nr_done = 0;
	/* Of a Fetch or Prefetch: bytes that came from the store, and the time from its admission
	 * until they were there. */
	uint64_t restored_bytes = 0, restored_ns = 0;
	uint64_t waited_ns = 0; /* for room, before it */
};

struct Request {
	enum class Kind : uint8_t {
		Attach,   /* start serving an arena: un-protect, scan, wake (protocol.md, a new
			     manager) */
		Detach,   /* stop serving; drops its records unless keep is set */
		Make,     /* EMPTY or LOST -> zeroed RESIDENT; waits for room */
		Fetch,    /* COLD -> RESIDENT; waits for room, full set or nothing */
		Spill,    /* RESIDENT and unleased -> COLD; busy blocks are skipped */
		Prefetch, /* like Fetch, but gives up instead of waiting for room */
		Drop,     /* -> EMPTY; EBUSY while any is leased */
		Forget,   /* -> LOST; blocks in use stay as they are */
	};
	Kind kind;
	std::shared_ptr<Arena> arena;
	std::vector<Extent> extents;
	uint64_t deadline_ns = 0; /* CLOCK_MONOTONIC; 0 = none */
	bool keep = false;        /* Detach: shutdown, the client will meet a new manager */
	bool waking = false;      /* Fetch: what is in use does not make way for it */
	std::function<void(const Outcome &)> done; /* may be empty */
};

/* Where blocks went, for the policy. Drained by one thread. */
struct Moved {
	Extent extent;
	Where where;
};

struct FaultServerOptions {
	uint64_t hot_limit_bytes =
		0; /* makes and fetches wait for room below it (hot + warm limits) */
	uint64_t max_restore_bytes = 64u << 20; /* in flight */
	uint32_t max_spills = 16;               /* extents in flight */
	uint32_t extent_bytes = 1u << 20;       /* as StoreOptions: longest I/O; a block must fit */
	/* So long after the start, records of arenas that nobody attached are dropped; 0: never. */
	uint64_t orphan_grace_ns = 0;
};

/* Monotonic counters; read by any thread. */
/* How long things took, by block. */
struct FaultTimes {
	Histogram spill_ns;     /* copied to gone from memory */
	Histogram restore_ns;   /* fault or request to there */
	Histogram stall_ns;     /* fault to there: a thread of the client stood still */
	Histogram reuse_gap_ns; /* gone from memory to wanted back; short ones are thrash */
};

/* Room that waiting requests need now. */
struct WantedRoom {
	uint64_t bytes = 0;        /* of what is in use */
	uint64_t waking_bytes = 0; /* of sessions that are being woken */
};

struct FaultStats {
	uint64_t nr_faults_missing = 0, nr_faults_wp = 0, nr_faults_minor = 0;
	uint64_t nr_spilled = 0, spilled_bytes = 0; /* blocks */
	uint64_t nr_spilled_clean = 0; /* of these, without a write: the store had the bytes */
	uint64_t nr_encoded = 0, encoded_bytes = 0; /* of these, in a lossy format, and its bytes */
	uint64_t nr_not_encoded = 0; /* spilled as they are, as the format could not hold them */
	uint64_t nr_spill_aborted = 0, nr_spill_failed = 0, nr_spill_refused = 0;
	uint64_t nr_restored = 0, restored_bytes = 0;
	uint64_t nr_demand_restored = 0; /* of these, by a fault */
	uint64_t nr_lost = 0;            /* blocks that could not be restored: counted misses */
	uint64_t nr_unknown_format = 0;  /* of these, in a format this version does not have */
	uint64_t nr_made = 0, nr_dropped = 0;
	uint64_t nr_no_room = 0;                         /* requests that ended EBUSY */
	WantedRoom wanted;                               /* for want of memory */
	std::vector<WantedRoom> wanted_by_tenant;        /* also for want of quota */
	uint64_t coming_bytes = 0;                       /* admitted, and not there yet */
	uint64_t restore_p50_ns = 0, restore_p99_ns = 0; /* event or request to resident, a block */
	uint64_t store_failed_ns = 0; /* when the store last failed; 0 = never. CLOCK_MONOTONIC */
	StoreStats store;
};

class FaultServer {
public:
	static Result<std::unique_ptr<FaultServer>> create(const FaultServerOptions &options,
							   std::unique_ptr<SpillStore> store);
	~FaultServer();

	/* The loop; returns after stop(), or with what made it impossible to go on. */
	Result<> run();
	/* Finishes or aborts what is in flight, syncs the store, ends run(). Any thread. */
	void stop();

	void submit(Request request);                  /* any thread */
	std::vector<Moved> drain_moved();              /* policy thread */
	[[nodiscard]] FaultStats stats() const;        /* any thread */
	[[nodiscard]] const FaultTimes &times() const; /* any thread */
	/* FaultServerOptions::hot_limit_bytes from now on. Any thread. */
	void set_memory_limit(uint64_t bytes);
	/* Called on the I/O thread when a request starts to wait for room: the policy should plan
	 * now. */
	void on_want_room(std::function<void()> callback);

private:
	struct Impl;
	explicit FaultServer(std::unique_ptr<Impl> impl);
	std::unique_ptr<Impl> impl_;
};

} // namespace cxlkv
