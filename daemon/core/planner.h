/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One plan: what leaves the hot and the warm tier, and what comes back.
 *
 * Leaving, in this order: blocks outside the attention window; pins below the
 * default priority; idle sessions, the longest idle first; the rest by the
 * priority of the preset. Anchors, pins above the default and sessions that
 * are being woken leave only when room that is needed now is not found otherwise.
 * For a session that is being woken none in use makes way, nor another one that is.
 *
 * The heads share one pool. The block of the least worth (reuse_model.h: hits
 * to be expected for the time it takes room) leaves, whichever head it is of, so
 * room flows to the head where a block more earns most hits until the marginal
 * ones are equal: the optimal partition where hits are concave in room (Stone,
 * Turek and Wolf, IEEE Trans. Computers 41(9), 1992), found anew by every plan.
 * A head that holds no more than head_floor times the mean of its session's
 * heads loses none.
 */
#pragma once

#include "core/arena_state.h"

#include <map>
#include <memory>
#include <vector>

namespace cxlkv {

/* What is left of a, at least nothing. */
inline uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

using Arenas = std::map<uint32_t, std::unique_ptr<ArenaState>>;

class Planner {
public:
	Planner(Arenas &arenas, const PolicyOptions &options, SessionCounters &counters,
		const PlanInput &input);

	std::vector<Order> run();

private:
	struct Victim {
		ArenaState *arena;
		uint32_t block;
		uint8_t pinned; /* priority of the pin, where pins are compared */
		double priority;
		uint32_t gap = 0;   /* as Promotable has it */
		bool again = false; /* it was used more than once */
	};
	/* What a tenant may still send down, and what could not go for want of cold quota. */
	struct TenantLeft {
		uint64_t warm = no_quota, cold = no_quota;
		bool cold_lacks = false;
	};
	TenantLeft &tenant_left(const ArenaState &arena)
	{
		return tenants_[arena.tenant < tenants_.size() ? arena.tenant : 0];
	}
	[[nodiscard]] bool counts(const ArenaState &arena) const
	{
		return !counted_ || arena.tenant == *counted_;
	}

	/*
	 * How far a pass goes, each further than the one before. For a watermark: what is young,
	 * scores well or prefills stays. For room that is needed now, worth alone says who goes
	 * first, and a score spares nobody: where the tier holds less than one step reads, what
	 * scored lately is no better than what is about to be read. Then nothing is spared, and
	 * last not even what is being woken.
	 */
	enum class Reach : uint8_t { Watermark, Needed, Anything, Waking };
	struct Pass {
		Where tier;
		Reach reach;
		bool for_wakes = false; /* sessions in use are spared */
		[[nodiscard]] bool hard() const { return reach >= Reach::Anything; }
		[[nodiscard]] bool waking() const { return reach == Reach::Waking; }
	};
	class Collector;
	class Promoter;
	/* Picks of one arena and action, until they become extents. */
	using Picks = std::map<std::pair<uint32_t, Action>, std::vector<Pick>>;

	void drop();
	void make_warm_room();
	void drain_warm();
	void promote_all();
	void drain_cold();
	void make_hot_room();
	void find_promotable();
	void leave_once_used();
	void exchange();
	[[nodiscard]] bool is_told(const ArenaState &arena, uint32_t block) const;
	[[nodiscard]] bool makes_way(const Victim &go, const Victim &come) const;
	/* Bytes that a tier has too much: for its watermark; at once; and with those who wait to
	 * be woken. */
	struct Excess {
		uint64_t soft, hard, waking;
	};
	void make_room(Where tier, const Excess &excess);
	void take_for_wakes(Where tier, uint64_t bytes);
	uint64_t take_queued(const Pass &pass, VictimQueue::Band band, uint64_t bytes);
	uint64_t take_idle(const Pass &pass, uint64_t bytes);
	uint64_t take_session(ArenaState &arena, uint32_t slot, const Pass &pass, uint64_t bytes);
	bool eligible(ArenaState &arena, uint32_t block, const Pass &pass) const;
	[[nodiscard]] bool at_floor(const ArenaState &arena, uint32_t block,
				    const Pass &pass) const;
	bool take(ArenaState &arena, uint32_t block, Where tier);
	/* Order it down, where budgets and quotas allow. */
	bool demote(ArenaState &arena, uint32_t block);
	/* Warm has room for a block more of it. */
	[[nodiscard]] bool may_demote(const ArenaState &arena);
	bool spill(ArenaState &arena, uint32_t block);

	/* By whole sessions: planner_sessions.cc. */
	void reckon_tenants();
	void make_tenants_room();
	void forget_for_room();
	[[nodiscard]] bool may_forget(const Session &session) const;
	[[nodiscard]] std::pair<ArenaState *, uint32_t> longest_idle(uint32_t tenant) const;
	[[nodiscard]] static uint64_t bytes_of(const ArenaState &arena, const Session &session);
	[[nodiscard]] uint64_t forgetting_bytes(uint32_t tenant) const;
	void settle_sessions();
	void sink(ArenaState &arena, uint32_t slot, bool (Planner::*down)(ArenaState &, uint32_t));
	void forget_session(ArenaState &arena, uint32_t slot);
	[[nodiscard]] uint64_t reserve_bytes() const;
	void wake();
	void fetch_session(ArenaState &arena, Session &session, uint32_t slot, bool promote);
	void prefetch();
	void promote();
	void pick(ArenaState &arena, uint32_t block, Action action);
	void flush();

	[[nodiscard]] uint64_t ordered_bytes(Where where) const;
	[[nodiscard]] uint64_t waking_bytes() const;
	[[nodiscard]] uint64_t draining_bytes() const;
	/* Bytes that may still come to hot below the limit given. */
	[[nodiscard]] uint64_t hot_room(uint64_t limit) const;

	Arenas &arenas_;
	const PolicyOptions &options_;
	SessionCounters &counters_;
	const PlanInput &input_;
	uint64_t move_left_, spill_left_, warm_left_;
	std::vector<TenantLeft> tenants_;
	std::vector<Victim> promotable_; /* the most promising first */
	bool idle_held_ = false; /* the last take_idle() met blocks that may go a little later */
	const uint32_t *counted_ = nullptr; /* the tenant whose arenas are looked at; null: all */
	uint64_t coming_bytes_ = 0;         /* ordered to hot by this plan */
	float next_rank_ = 0;
	Picks picks_;
	std::vector<Order> orders_;
};

} // namespace cxlkv
