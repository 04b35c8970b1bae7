/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The policy thread: drains hints, tells the policy what moved, lets it plan,
 * and hands its orders to the I/O thread and the mover. The policy itself is
 * pure (core/policy.h); this is where it meets the clock.
 */
#pragma once

#include "arena_table.h"
#include "core/pass_stamp.h"
#include "core/policy.h"
#include "core/sample_interval.h"
#include "latency_thread.h"
#include "recorder.h"
#include "sys/fault_server.h"
#include "sys/kmod_device.h"
#include "sys/mover.h"
#include "sys/placement.h"
#include "sys/sampler.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace cxlkv {

struct PolicyThreadOptions {
	uint32_t interval_ms = 20;
	bool enabled = true; /* false: the policy learns, and orders nothing */
	uint64_t hot_limit_bytes = 0, warm_limit_bytes = 0;
	uint32_t high_permil = 950, low_permil = 900;
	uint64_t max_spill_bytes = 64ull << 20; /* ordered and not yet done */
	uint64_t move_MBps = 1000;
	KmodDevice::Sampling sampling;
	uint32_t min_sample_interval_ms = 1000; /* where accesses change */
	uint32_t lease_limit_ms = 0;            /* 0: a lease lasts until it is given back */
	std::vector<Quota> quotas;              /* of the tenants, by number */
};

class PolicyThread {
public:
	PolicyThread(const PolicyThreadOptions &options, const PolicyOptions &policy,
		     ArenaTable &arenas, FaultServer &faults, Mover &mover, Sampler &sampler,
		     const LatencyThread &latency, const Placement &placement, KmodDevice *module,
		     Recorder &recorder);

	void run(); /* until stop() */
	void stop();
	/* From the next round on. Any thread. */
	void set_options(const PolicyThreadOptions &options, const PolicyOptions &policy);
	/* Called on this thread when blocks may be elsewhere. Before run(). */
	void on_moved(std::function<void(const Extent &)> callback)
	{
		on_moved_ = std::move(callback);
	}
	/*
	 * Called on this thread while requests wait for memory and the cold tier has no
	 * room for what would make way: the bytes that are waited for. Before run().
	 */
	void on_starved(std::function<void(uint64_t)> callback)
	{
		on_starved_ = std::move(callback);
	}
	/* Plan now: somebody waits for room. Any thread. */
	void kick();

	/* hints: what is known of it from before. */
	void attach(const std::shared_ptr<Arena> &arena, const std::vector<cxl_kv_hint> &hints);
	void detach(uint32_t arena);
	/* A hint of the daemon's own (a session was parked, woken). Any thread. */
	void hint(Arena &arena, const cxl_kv_hint &hint);
	/* Before something that a recording must show after the hints that wait. Any thread. */
	void take_hints();
	/* Empty a tier, Warm or Cold, and keep it empty; or stop that. Any thread. */
	void drain(Where tier, bool on);
	[[nodiscard]] bool draining(Where tier) const
	{
		return tier == Where::Warm ? draining_warm_ : draining_cold_;
	}
	/* Look again where these blocks are, before the next plan. Any thread. */
	void recheck(std::shared_ptr<Arena> arena, Extent extent);

	/* A conversation begins in the slot, or has ended. Any thread. */
	void open_session(const Arena &arena, uint32_t slot);
	void close_session(const Arena &arena, uint32_t slot);
	void reopen_session(const Arena &arena, uint32_t slot);
	void touch_session(const Arena &arena, uint32_t slot);
	[[nodiscard]] bool is_active(const Arena &arena, uint32_t slot) const;
	/* What is cold of the session's tokens around the position comes with the next plan. */
	void prefetch(const Arena &arena, uint32_t slot, uint32_t position, uint32_t window_tokens);
	/*
	 * 0: the session may become active, with so many bytes beside its next
	 * blocks; else when to ask again, in ms. For all memory and its tenant's.
	 */
	[[nodiscard]] uint32_t admission_retry_ms(const Arena &arena, uint32_t slot,
						  uint64_t bytes) const;
	/* The same for one that is to be woken, with all its bytes; it is active from then on, and
	 * kept while the caller's request fetches it. */
	[[nodiscard]] uint32_t wake_session(Arena &arena, uint32_t slot, uint64_t bytes);
	[[nodiscard]] SessionStats session_stats() const;
	[[nodiscard]] uint64_t nr_expired_leases() const { return nr_expired_leases_; }
	[[nodiscard]] std::vector<HeadStats> heads(uint32_t arena) const;
	[[nodiscard]] std::array<uint64_t, 5> accesses() const;
	/* How often each arena is sampled now, by its number. */
	[[nodiscard]] std::map<uint32_t, uint32_t> sample_intervals_ms() const;
	/* Open sessions by phase: unknown, prefill, decode. */
	[[nodiscard]] std::array<uint32_t, 3> phases(const ArenaEntry &entry) const;

private:
	struct Recheck {
		std::shared_ptr<Arena> arena;
		Extent extent;
	};

	struct Samples {
		SampleInterval interval;
		uint64_t begun_ms; /* when this interval began */
		KmodDevice::SamplingCost cost;
		PassStamp pass = {};
	};

	void tick();
	void look_at_new();
	void hint_locked(Arena &arena, const cxl_kv_hint &hint, uint64_t now_ms);
	[[nodiscard]] uint32_t admission_locked(const Arena &arena, uint32_t slot, uint64_t bytes,
						uint64_t now_ms) const;
	[[nodiscard]] std::vector<std::pair<uint32_t, bool>> ask_cpusets(uint64_t now_ms);
	void drain_hints(uint64_t now_ms);
	/* policy_samples.cc */
	void drain_samples(uint64_t now_ms);
	Samples &samples_of(const Arena &arena, uint64_t now_ms);
	void end_interval(const ArenaEntry &entry, uint64_t now_ms);
	void apply_moves(uint64_t now_ms);
	void note_new(const Moved &moved);
	void place_sessions();
	void tell_starved(const FaultStats &stats, const PlanInput &input);
	[[nodiscard]] bool overflows();
	void expire_leases(uint64_t now_ms);
	[[nodiscard]] std::pair<uint64_t, uint64_t> held_bytes() const;
	PlanInput plan_input(const FaultStats &stats, uint64_t now_ms) const;
	void add_tenants(PlanInput &input, const FaultStats &stats) const;
	[[nodiscard]] TierRoom room_of(uint64_t used, uint64_t limit) const;
	void give(const Order &order);
	void give_to_faults(const Order &order, Request::Kind kind,
			    const std::shared_ptr<Arena> &arena);
	void give_to_mover(const Order &order, const std::shared_ptr<Arena> &arena);
	/* Forgets the order's blocks as in flight and looks where they are. */
	void finished(const Order &order, const std::shared_ptr<Arena> &arena);

	PolicyThreadOptions options_; /* written with both mutexes held, read with either */
	ArenaTable &arenas_;
	FaultServer &faults_;
	Mover &mover_;
	Sampler &sampler_;
	const LatencyThread &latency_;
	const Placement &placement_;
	KmodDevice *const module_; /* null in native mode */
	Recorder &recorder_;

	mutable std::mutex policy_mutex_; /* taken before mutex_ where both are */
	Policy policy_;
	SessionOptions sessions_;
	std::map<uint32_t, Samples> samples_; /* by arena */
	std::deque<Extent> new_;              /* came into memory, and nobody looked yet where */
	bool hot_full_ = false;               /* what overflows() said of hot last */

	std::mutex mutex_;
	std::condition_variable wake_;
	bool stop_ = false, kicked_ = false;
	std::vector<Recheck> rechecks_;
	std::function<void(const Extent &)> on_moved_;
	std::function<void(uint64_t)> on_starved_;
	uint64_t nr_no_space_ = 0; /* of the store, when it was looked at last */
	std::atomic<uint64_t> spilling_bytes_{0}, moving_bytes_{0};
	std::atomic<bool> draining_warm_{false}, draining_cold_{false};
	uint64_t leases_aged_ms_ = 0, cpusets_asked_ms_ = 0;
	std::atomic<uint64_t> nr_expired_leases_{0};
};

} // namespace cxlkv
