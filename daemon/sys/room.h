/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests that bring blocks into memory or drop them. Make and Fetch get room
 * for their full set or wait, in order, until their deadline; Prefetch gives up
 * instead. What was admitted holds a reservation until it is there. A session
 * that is being woken keeps nobody waiting but others that are.
 */
#pragma once

#include "sys/job.h"
#include "sys/restore.h"
#include "sys/spill.h"

#include <atomic>
#include <deque>
#include <functional>
#include <list>

namespace cxlkv {

class Room {
public:
	/* used(tenant) = bytes that his arenas, or those of all (null), have in memory or were
	 * promised; on_done takes jobs that ended. */
	Room(Ledger &ledger, Spiller &spiller, Restorer &restorer, SpillStore &store,
	     const FaultServerOptions &options, std::function<uint64_t(const uint32_t *)> used,
	     std::function<void(JobPtr)> on_done);

	void enqueue(JobPtr job);
	/* Admits what fits, moves admitted jobs on; a bounded amount of work. True: call again
	 * soon. */
	bool pump();
	/* Room came free after pump() looked. */
	[[nodiscard]] bool can_admit();
	/* Bytes of all arenas that may be in memory; 0 = no limit. Any thread. */
	void set_limit(uint64_t bytes) { limit_bytes_ = bytes; }
	/* Ends the jobs of the arena (nullptr: all). */
	void cancel(const ServedArena *served, int error);

	/* When pump() must be called though nothing happened; 0 = no need. */
	[[nodiscard]] uint64_t wakeup_ns() const;
	/* Bytes that waiting jobs want: where all memory is full, and by whose quota is. */
	void count_wanted(FaultStats &stats) const;
	void on_want_room(std::function<void()> callback) { want_room_ = std::move(callback); }

private:
	enum class Step { Again, Waits, Done };
	static constexpr uint64_t busy_retry_ns = 1'000'000;
	static constexpr uint64_t slice_bytes = 4u << 20; /* made or dropped in one go */

	[[nodiscard]] static bool needs_room(Request::Kind kind, BlockState state);
	uint64_t need(Job &job) const;
	[[nodiscard]] bool fits(uint64_t bytes) const;
	[[nodiscard]] bool fits_quota(const ServedArena &served, uint64_t bytes) const;
	void admit(JobPtr job);
	void begin_make(ServedArena &served, uint32_t block);
	[[nodiscard]] bool must_wait(const Request &request, const ServedArena &served) const;
	[[nodiscard]] size_t next_to_admit();
	bool try_admit();
	Step advance_forget(Job &job, uint64_t *budget);
	void expire(uint64_t now);
	void take_back(Job &job);
	Step advance(Job &job, uint64_t *budget);
	Step advance_make(Job &job, uint64_t *budget);
	Step advance_fetch(Job &job);
	Step advance_drop(Job &job, uint64_t *budget);
	Step drop_block(ServedArena &served, uint32_t block, BlockState to, int *error);

	Ledger &ledger_;
	Spiller &spiller_;
	Restorer &restorer_;
	SpillStore &store_;
	const FaultServerOptions &options_;
	std::atomic<uint64_t> limit_bytes_;
	std::function<uint64_t(const uint32_t *)> used_;
	std::function<void(JobPtr)> on_done_;
	std::function<void()> want_room_;

	struct Waiting {
		JobPtr job;
		uint64_t bytes; /* when it was last looked at */
	};
	std::deque<Waiting> waiting_;
	std::list<JobPtr> active_;
	bool busy_ = false; /* a job waits for a block that the mover has */
};

} // namespace cxlkv
