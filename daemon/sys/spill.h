/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks leave memory: docs/spill-protocol.md, "Spill". A spill is a run of
 * adjacent blocks; each of them may abort on its own while the run goes on.
 */
#pragma once

#include "base/log.h"
#include "sys/job.h"
#include "sys/spill_store_file.h"

#include <deque>
#include <functional>
#include <unordered_map>

namespace cxlkv {

class Spiller {
public:
	/* drain(arena) handles every event that waits; on_done takes jobs that ended. */
	Spiller(SpillStore &store, Ledger &ledger, const FaultServerOptions &options,
		std::function<void(ServedArena &)> drain, std::function<void(JobPtr)> on_done);

	void enqueue(JobPtr job) { queue_.push_back(std::move(job)); }
	/* Starts what the limits allow; a bounded amount of work. True: call again soon. */
	bool pump();
	void complete(StoreCompletion &&completion);

	/* The client wrote, or must be able to: pages stay, and the store's copy no longer counts.
	 */
	void make_writable(ServedArena &served, uint32_t block);
	/* Ends queued jobs of the arena (nullptr: of all), and aborts what is in flight for it. */
	void cancel(const ServedArena *served, int error);

	[[nodiscard]] uint32_t nr_in_flight() const
	{
		return static_cast<uint32_t>(in_flight_.size());
	}

private:
	struct Spill {
		JobPtr job;
		uint32_t first = 0, nr = 0;
		Bounce buffer;
		uint64_t since_ns = 0;
		bool clean = false;        /* the store has these bytes: nothing is written */
		bool store_copies = false; /* the buffer is still empty */
		ColdFormat format = ColdFormat::Raw;   /* of the buffer's bytes */
		std::vector<codec::ErrorStats> errors; /* of each block, where it is not raw */

		[[nodiscard]] ServedArena &served() const { return *job->served; }
	};
	static constexpr uint32_t max_starts = 16; /* a pump */

	bool claim_run(Spill &spill);
	void start(const JobPtr &job, Bounce buffer);
	bool start_rest();
	void copy_and_write(Spill spill);
	void give_up_leased(Spill &spill);
	int copy_out(Spill &spill);
	void encode(Spill &spill, ColdFormat format);
	void cut(Spill &spill, uint32_t nr);
	const std::byte *raw_bytes(const Spill &spill, uint32_t block);
	void punch(Spill &spill);
	uint32_t punch_run(Spill &spill, uint32_t first, uint32_t nr);
	void left_memory(Spill &spill, uint32_t first, uint32_t nr);
	void put_back(Spill &spill, uint32_t block);
	void abort_block(Spill &spill, uint32_t block);
	void end(Spill &spill);
	void release(const JobPtr &job);
	void abort_all(Spill &spill, uint64_t &counter);

	SpillStore &store_;
	Ledger &ledger_;
	const FaultServerOptions &options_;
	std::function<void(ServedArena &)> drain_;
	std::function<void(JobPtr)> on_done_;
	std::deque<JobPtr> queue_;
	std::deque<Spill> rests_; /* claimed and protected, but without a buffer */
	AlignedBuffer staging_;   /* blocks that are being encoded or decoded */
	std::unordered_map<uint64_t, Spill> in_flight_; /* by the store's tag */
	uint64_t next_tag_ = 1;
	uint32_t generation_ = 0;
	LogLimit complaint_;
};

} // namespace cxlkv
