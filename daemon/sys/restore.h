/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks come back into memory: docs/spill-protocol.md, "Restore". Two queues:
 * blocks that a thread is blocked on go before blocks that were asked for, and
 * take queued neighbours of the same extent along in one read.
 */
#pragma once

#include "base/log.h"
#include "sys/served_arena.h"
#include "sys/spill_store_file.h"

#include <deque>
#include <unordered_map>

namespace cxlkv {

class Restorer {
public:
	Restorer(SpillStore &store, Ledger &ledger, const FaultServerOptions &options);

	/* A thread waits for this block, which is Cold or Queued. */
	void demand(ServedArena &served, uint32_t block);
	/* A Cold block was asked for; the caller found room. */
	void fetch(ServedArena &served, uint32_t block, uint64_t since_ns);
	/* A Filling block: the pages it lacks. */
	void fill(ServedArena &served, uint32_t block);
	/* Back to Cold, if its read has not begun and no thread waits. */
	void unqueue(ServedArena &served, uint32_t block);

	/* Starts the reads that the limits allow. */
	void pump();
	void complete(StoreCompletion &&completion);

	/* Cannot be served, ever: SIGBUS to whoever touches it until it is made again. */
	void lose(ServedArena &served, uint32_t block);
	/* Forgets what is queued for the arena. */
	void forget(ServedArena &served);

	[[nodiscard]] uint32_t nr_in_flight() const { return static_cast<uint32_t>(reads_.size()); }
	/* When to call pump() though nothing happened; 0 = no need. */
	[[nodiscard]] uint64_t retry_at_ns() const { return retries_.empty() ? 0 : retry_at_ns_; }

private:
	struct Run {
		ServedArena *served = nullptr;
		uint32_t first = 0, nr = 0;
		uint64_t since_ns = 0;
	};
	struct Read {
		Run run;
		Bounce buffer;
		uint32_t nr_demanded = 0; /* of its blocks, threads wait for so many */
	};
	static constexpr uint64_t retry_ns = 10'000'000;

	[[nodiscard]] static bool waits(BlockState state)
	{
		return state == BlockState::Queued || state == BlockState::Demanded;
	}
	bool start_next(std::deque<Run> &queue, bool urgent);
	Run next_run(Run &from) const;
	Run widen(Run run) const;
	void start(Run run, Bounce buffer);
	void put_in_place(Read &read, uint32_t first, uint32_t nr, const std::byte *from);
	uint32_t decode(const Read &read, const StoreCompletion &completion, uint32_t i);
	int copy_in(ServedArena &served, uint32_t first, uint32_t nr, const std::byte *from);
	void back_off(Run run);
	void retry_due();

	SpillStore &store_;
	Ledger &ledger_;
	const FaultServerOptions &options_;
	std::deque<Run> demanded_, fetched_;
	std::vector<Run> retries_; /* no memory just now; threads may wait */
	uint64_t retry_at_ns_ = 0;
	std::unordered_map<uint64_t, Read> reads_; /* by the store's tag */
	uint64_t next_tag_ = 1, reading_bytes_ = 0;
	AlignedBuffer staging_; /* decoded blocks */
	LogLimit complaint_;
};

} // namespace cxlkv
