/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The policy: what it is told, and the orders it gives. Pure: no system calls,
 * clocks or randomness; the daemon and the simulator run the same code.
 *
 * The daemon calls hint(), sample() and moved() as things happen and plan()
 * once a tick. Orders are wishes: the daemon may refuse any of them (leased,
 * busy, no room) and says through moved() what really happened.
 */
#pragma once

#include "core/quota.h"
#include "core/session_life.h"
#include "core/types.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cxlkv {

/* Every constant of the policy; defaults and ranges are documented in policy_options.cc. */
struct PolicyOptions {
	std::string preset = "adaptive"; /* adaptive | paper */
	double alpha = 0.2;         /* EMA weight of a new score, (0, 1]; design.md section 6 */
	double access_mass = 0.01;  /* attention from which a hint counts as an access */
	double decay_steps = 1000;  /* tau of decay = 1 - exp(-age/tau), steps */
	uint32_t anchor_blocks = 1; /* first blocks of each head that go last */
	double head_floor = 0;      /* share of the mean of its session's heads that a head keeps */
	uint32_t prefetch_window_tokens = 512;  /* W of the window prefetch */
	uint32_t prefetch_layers = 2;           /* k of the layer look-ahead */
	double phase_ratio = 10;                /* reads per write that mean decode */
	double phase_hysteresis = 0.5;          /* decode ends below this share of phase_ratio */
	double reuse_half_life_steps = 100'000; /* what was seen of reuse counts half after it */
	double promote_score = 0.2;             /* warm blocks scoring above it are promoted */
	double demote_score = 0.1;              /* hot blocks scoring below it may be demoted */
	uint32_t min_residency_ms = 200;        /* after a move a block stays at least this long */
	uint32_t move_residency_ms = 5000;      /* and after one between hot and warm, this long */
	uint32_t refusal_ms = 200; /* a refused block is left alone, four times as long each time */
	uint32_t order_timeout_ms = 5000;     /* an order without an answer counts as lost */
	uint32_t wake_ms = 10'000;            /* a woken session is fetched and kept for so long */
	uint32_t max_extent_bytes = 1u << 20; /* longest order */
	SessionOptions session;
};

/* "" or what is wrong: option, value, allowed range. */
std::string check_options(const PolicyOptions &options);

struct TierRoom {
	uint64_t used_bytes = 0; /* there now; what orders still out will take away is known here */
	uint64_t limit_bytes = 0; /* 0 = the tier does not exist */
	uint64_t high_bytes = 0;  /* above it room is made */
	uint64_t low_bytes = 0;   /* down to it */
};

/* The same of one tenant. A limit of no_quota: what there is. */
struct TenantRoom {
	TierRoom hot, warm;
	uint64_t cold_used_bytes = 0, cold_limit_bytes = no_quota;
	uint64_t wanted_bytes = 0, waking_bytes = 0;
};

struct PlanInput {
	uint64_t now_ms = 0;
	TierRoom hot, warm;
	bool cold_available = true; /* false: no store, or it is full */
	bool drain_warm = false;    /* nothing goes there, and all that is there leaves */
	bool drain_cold = false;
	bool may_promote = true;         /* false: hot is the slower tier now; a drain goes on */
	uint64_t wanted_hot_bytes = 0;   /* room that waiting fetches and makes need on top */
	uint64_t waking_hot_bytes = 0;   /* and wakes, for which nobody in use makes way */
	uint64_t move_budget_bytes = 0;  /* hot <-> warm traffic allowed in this plan */
	uint64_t spill_budget_bytes = 0; /* bytes that may be ordered to cold in this plan */
	std::vector<TenantRoom> tenants; /* by number; empty: no tenant has a quota */
};

/* What status shows of a head: one (layer, KV head) of one arena, over all its sessions. */
struct HeadStats {
	double ema_sum = 0; /* over its resident blocks */
	uint64_t nr_hot = 0, nr_warm = 0, nr_cold = 0;
	uint64_t nr_hints = 0, nr_reads = 0, nr_writes = 0;
};

/* Since the start, but for nr_by_state. */
struct SessionStats {
	std::array<uint32_t, SessionLife::nr_states> nr_by_state{};
	uint64_t nr_dropped = 0;               /* sessions given up */
	uint64_t nr_active_evicted_blocks = 0; /* ordered out of the tier of an active session */
};

enum class Phase : uint8_t { Unknown, Prefill, Decode };

class Policy {
public:
	explicit Policy(const PolicyOptions &options);
	~Policy();
	Policy(const Policy &) = delete;
	Policy &operator=(const Policy &) = delete;

	/* Options that can change live (all but none need a restart). */
	void set_options(const PolicyOptions &options);

	/* The geometry was checked. All its blocks begin as Empty. Throws std::bad_alloc. */
	void add_arena(uint32_t arena, const Geometry &geometry);
	void remove_arena(uint32_t arena);
	/* Whose quotas it counts against; an arena is tenant 0's until then. */
	void set_tenant(uint32_t arena, uint32_t tenant);
	/* Its blocks may lie in warm; until said otherwise, they may. */
	void set_warm_allowed(uint32_t arena, bool allowed);

	/*
	 * One hint, already validated against the geometry by the caller.
	 * PARK marks the session parked, WAKE active: its cold blocks are
	 * ordered back by the next plan(). POSITION is the session's clock.
	 */
	void hint(uint32_t arena, const cxl_kv_hint &hint, uint64_t now_ms);
	/* The session that WAKE was said of is fetched by a request, which waits for room by
	 * itself: the plan only keeps what is there. */
	void fetched_by_request(uint32_t arena, uint32_t slot);

	/* The next plan() fetches what is cold of a session's tokens P-W..P+W, the nearest first,
	 * as far as hot has room. */
	void prefetch(uint32_t arena, uint32_t slot, uint32_t position, uint32_t window_tokens);

	/* A conversation begins in the slot, or has ended there. */
	void open_session(uint32_t arena, uint32_t slot, uint64_t now_ms);
	void close_session(uint32_t arena, uint32_t slot, uint64_t now_ms);
	/* One of before a restart goes on there, active or not. */
	void reopen_session(uint32_t arena, uint32_t slot);
	/* The engine says that it lives. */
	void touch_session(uint32_t arena, uint32_t slot, uint64_t now_ms);
	[[nodiscard]] bool is_active(uint32_t arena, uint32_t slot) const;
	/* The active sessions of a tenant, or of all; but for one slot. */
	[[nodiscard]] ActiveLoad load(const uint32_t *tenant, uint32_t but_arena, uint32_t but_slot,
				      uint64_t now_ms) const;
	[[nodiscard]] SessionStats session_stats() const;

	/* Sampled accesses: bit i of the masks is block first + i. now_ms: when their pass began.
	 */
	void sample(uint32_t arena, uint32_t first, uint64_t touched, uint64_t written,
		    uint64_t now_ms);

	/* A sampling interval is over, in which there was a pass or would have been. */
	void interval(uint32_t arena);

	/* Blocks are now there; also after a failed order (then with where they still are). */
	void moved(const Extent &extent, Where where, uint64_t now_ms);

	/* Orders, best first, demotions before promotions, adjacent blocks coalesced. */
	std::vector<Order> plan(const PlanInput &input);

	[[nodiscard]] std::vector<HeadStats> heads(uint32_t arena) const;
	/* Accesses of all arenas so far by where the block was; index: Where. */
	[[nodiscard]] std::array<uint64_t, 5> accesses() const;
	[[nodiscard]] Phase phase(uint32_t arena, uint32_t slot) const;
	/* EMA of a block as of now, 0..1; for tests and the heat map. */
	[[nodiscard]] double score(uint32_t arena, uint32_t block) const;

private:
	struct Impl;
	std::unique_ptr<Impl> impl_;
};

} // namespace cxlkv
