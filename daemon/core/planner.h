/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One plan: what leaves the hot and the warm tier, and what comes back.
 *
 * Leaving, in this order: blocks outside the attention window; pins below the
 * default priority; parked sessions, the longest parked first; the rest by the
 * paper's eviction priority. Anchors, pins above the default and sessions that
 * are being woken leave only when room that is needed now is not found otherwise.
 */
#pragma once

#include "core/arena_state.h"

#include <map>
#include <memory>
#include <vector>

namespace cxlkv {

using Arenas = std::map<uint32_t, std::unique_ptr<ArenaState>>;

class Planner {
public:
	Planner(Arenas &arenas, const PolicyOptions &options, const PlanInput &input);

	std::vector<Order> run();

private:
	struct Victim {
		ArenaState *arena;
		uint32_t block;
		uint8_t pinned; /* priority of the pin, where pins are compared */
		double priority;
	};
	/* How far a pass goes: a soft one keeps what is young, scores well, or prefills. */
	struct Pass {
		Where tier;
		bool hard;
		bool waking;
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
	[[nodiscard]] uint64_t promotable_bytes() const;
	void make_room(Where tier, uint64_t soft_bytes, uint64_t hard_bytes);
	uint64_t take_queued(const Pass &pass, VictimQueue::Band band, uint64_t bytes);
	uint64_t take_parked(const Pass &pass, uint64_t bytes);
	uint64_t take_session(ArenaState &arena, uint32_t slot, const Pass &pass, uint64_t bytes);
	bool eligible(ArenaState &arena, uint32_t block, const Pass &pass) const;
	[[nodiscard]] bool at_floor(const ArenaState &arena, uint32_t block,
				    const Pass &pass) const;
	bool take(ArenaState &arena, uint32_t block, Where tier);
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
	const PlanInput &input_;
	uint64_t move_left_, spill_left_, warm_left_;
	uint64_t coming_bytes_ = 0; /* ordered to hot by this plan */
	float next_rank_ = 0;
	Picks picks_;
	std::vector<Order> orders_;
};

} // namespace cxlkv
