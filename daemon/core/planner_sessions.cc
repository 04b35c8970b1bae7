/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The plan's part that goes by whole sessions: idle ones, tenants over their quota, wakes. */
#include "core/planner.h"

#include <algorithm>

namespace cxlkv {

namespace {

constexpr size_t hot = as_index(Where::Hot), warm = as_index(Where::Warm),
		 cold = as_index(Where::Cold);

} // namespace

/* ---- idle sessions ---- */

uint64_t Planner::take_idle(const Pass &pass, uint64_t bytes)
{
	struct Idle {
		ArenaState *arena;
		uint32_t slot;
		uint64_t since_ms;
	};
	std::vector<Idle> idle;
	idle_held_ = false;
	for (auto &[id, arena] : arenas_)
		for (uint32_t slot = 0; bytes && slot < arena->sessions.size(); slot++) {
			const Session &session = arena->sessions[slot];
			if (counts(*arena) && !session.life.active() &&
			    session.nr[static_cast<size_t>(pass.tier)])
				idle.push_back({arena.get(), slot, session.life.used_ms()});
		}
	std::stable_sort(idle.begin(), idle.end(),
			 [](const Idle &a, const Idle &b) { return a.since_ms < b.since_ms; });
	uint64_t got = 0;
	for (const Idle &p : idle) {
		if (got >= bytes)
			break;
		got += take_session(*p.arena, p.slot, pass, bytes - got);
	}
	return got;
}

/* In the order of its blocks, on from where the last scan ended: long extents. */
uint64_t Planner::take_session(ArenaState &arena, uint32_t slot, const Pass &pass, uint64_t bytes)
{
	Session &session = arena.sessions[slot];
	uint32_t per_slot = arena.geometry().blocks_per_slot(), first = slot * per_slot;
	uint32_t unseen = session.nr[static_cast<size_t>(pass.tier)];
	uint64_t got = 0;
	for (uint32_t i = 0; i < per_slot && unseen && got < bytes; i++) {
		uint32_t b = first + session.cursor;
		session.cursor = session.cursor + 1 == per_slot ? 0 : session.cursor + 1;
		if (arena.table.where(b) != pass.tier)
			continue;
		unseen--;
		if (arena.table.priority(b) > CXL_KV_DEFAULT_PRIORITY || arena.table.ordered(b))
			continue;
		if (!eligible(arena, b, pass))
			idle_held_ |= !session.waking(input_.now_ms);
		else if (take(arena, b, pass.tier))
			got += arena.geometry().block_bytes;
	}
	return got;
}

/* Where a session has sunk to, its blocks follow though nobody asks for the room. */
void Planner::settle_sessions()
{
	for (auto &[id, arena] : arenas_)
		for (uint32_t slot = 0; slot < arena->sessions.size(); slot++) {
			const Session &session = arena->sessions[slot];
			if (session.waking(input_.now_ms))
				continue;
			if (session.life.state() == SessionLife::State::Dropped)
				forget_session(*arena, slot);
			else if (session.life.state() == SessionLife::State::ParkedCold &&
				 session.nr[hot] + session.nr[warm])
				sink(*arena, slot, &Planner::spill);
			else if (session.life.state() == SessionLife::State::ParkedWarm &&
				 session.nr[hot] && input_.warm.limit_bytes)
				sink(*arena, slot, &Planner::demote);
		}
	flush();
}

void Planner::sink(ArenaState &arena, uint32_t slot, bool (Planner::*down)(ArenaState &, uint32_t))
{
	const uint32_t per_slot = arena.geometry().blocks_per_slot(), first = slot * per_slot;
	const bool from_warm = down == &Planner::spill;
	uint32_t unseen = arena.sessions[slot].nr[hot];

	unseen += from_warm ? arena.sessions[slot].nr[warm] : 0;
	for (uint32_t b = first; b < first + per_slot && unseen; b++) {
		const Where where = arena.table.where(b);
		if (where != Where::Hot && !(from_warm && where == Where::Warm))
			continue;
		unseen--;
		if (arena.table.ordered(b) || arena.table.priority(b) > CXL_KV_DEFAULT_PRIORITY ||
		    !arena.movable(b, input_.now_ms, true))
			continue;
		if (!(this->*down)(arena, b))
			return; /* the budget is spent, or the quota */
	}
}

/* All of it or, where something is in use just now, the rest with the next plans. */
void Planner::forget_session(ArenaState &arena, uint32_t slot)
{
	const Session &session = arena.sessions[slot];
	const uint32_t per_slot = arena.geometry().blocks_per_slot(), first = slot * per_slot;
	uint32_t unseen = session.nr[hot] + session.nr[warm] + session.nr[cold];

	for (uint32_t b = first; b < first + per_slot && unseen; b++) {
		const Where where = arena.table.where(b);
		if (where == Where::Empty || where == Where::Lost)
			continue;
		unseen--;
		if (!arena.table.ordered(b) && arena.movable(b, input_.now_ms, false))
			pick(arena, b, Action::Forget);
	}
}

/* ---- tenants ---- */

/* What each may still send down, before anything is ordered by this plan. */
void Planner::reckon_tenants()
{
	tenants_.resize(std::max<size_t>(input_.tenants.size(), 1));
	for (uint32_t t = 0; t < input_.tenants.size(); t++) {
		const TenantRoom &room = input_.tenants[t];
		counted_ = &t;
		/* Nothing tells a spill that is out from a demotion: both count against both. */
		const uint64_t leaving = ordered_bytes(Where::Hot) + ordered_bytes(Where::Warm);
		if (room.warm.limit_bytes != no_quota)
			tenants_[t].warm =
				minus(room.warm.limit_bytes, room.warm.used_bytes + leaving);
		if (room.cold_limit_bytes != no_quota)
			tenants_[t].cold =
				minus(room.cold_limit_bytes, room.cold_used_bytes + leaving);
	}
	counted_ = nullptr;
}

void Planner::make_tenants_room()
{
	for (uint32_t t = 0; t < input_.tenants.size(); t++) {
		const TenantRoom &room = input_.tenants[t];
		auto make = [&](Where tier, const TierRoom &of, uint64_t wanted, uint64_t waking) {
			if (of.limit_bytes == no_quota)
				return;
			const uint64_t used = minus(of.used_bytes, ordered_bytes(tier)) +
					      std::min(wanted, of.limit_bytes);
			const uint64_t soft = used > of.high_bytes ? minus(used, of.low_bytes) : 0;
			make_room(tier,
				  {soft, minus(used, of.limit_bytes),
				   minus(used + std::min(waking, of.limit_bytes), of.limit_bytes)});
		};
		counted_ = &t;
		make(Where::Warm, room.warm, 0, 0);
		make(Where::Hot, room.hot, room.wanted_bytes + ordered_bytes(Where::Cold),
		     room.waking_bytes);
		flush();
	}
	counted_ = nullptr;
}

/* A tenant whose cold quota is full gives up whole sessions, the longest idle first: one at a
 * time, or as many as he waits for. */
void Planner::forget_for_room()
{
	for (uint32_t t = 0; t < tenants_.size(); t++) {
		if (!tenants_[t].cold_lacks)
			continue;
		const uint64_t wanted =
			t < input_.tenants.size()
				? input_.tenants[t].wanted_bytes + input_.tenants[t].waking_bytes
				: 0;
		uint64_t freed = forgetting_bytes(t);
		while (freed < std::max<uint64_t>(wanted, 1)) {
			auto [arena, slot] = longest_idle(t);
			if (!arena)
				break;
			Session &session = arena->sessions[slot];
			freed += bytes_of(*arena, session);
			session.life.drop(input_.now_ms);
			counters_.nr_dropped++;
		}
	}
}

std::pair<ArenaState *, uint32_t> Planner::longest_idle(uint32_t tenant) const
{
	std::pair<ArenaState *, uint32_t> found{nullptr, 0};
	uint64_t used_ms = UINT64_MAX;

	for (const auto &[id, arena] : arenas_)
		for (uint32_t slot = 0; arena->tenant == tenant && slot < arena->sessions.size();
		     slot++) {
			const Session &session = arena->sessions[slot];
			if (!may_forget(session) || session.life.used_ms() >= used_ms)
				continue;
			found = {arena.get(), slot};
			used_ms = session.life.used_ms();
		}
	return found;
}

uint64_t Planner::bytes_of(const ArenaState &arena, const Session &session)
{
	return uint64_t{arena.geometry().block_bytes} *
	       (session.nr[hot] + session.nr[warm] + session.nr[cold]);
}

bool Planner::may_forget(const Session &session) const
{
	return !session.life.active() && session.life.state() != SessionLife::State::Dropped &&
	       !session.waking(input_.now_ms) && !session.empty();
}

/* Given up already, and not yet gone. */
uint64_t Planner::forgetting_bytes(uint32_t tenant) const
{
	uint64_t bytes = 0;
	for (const auto &[id, arena] : arenas_)
		for (const Session &session : arena->sessions)
			if (arena->tenant == tenant &&
			    session.life.state() == SessionLife::State::Dropped)
				bytes += bytes_of(*arena, session);
	return bytes;
}

uint64_t Planner::reserve_bytes() const
{
	uint64_t bytes = 0;
	for (const auto &[id, arena] : arenas_)
		for (const Session &session : arena->sessions)
			bytes += session.in_use() ? arena->reserve_bytes() : 0;
	return bytes;
}

/* ---- wakes ---- */

void Planner::wake()
{
	for (auto &[id, arena] : arenas_)
		for (uint32_t slot = 0; slot < arena->sessions.size(); slot++) {
			Session &session = arena->sessions[slot];
			if (session.waking(input_.now_ms))
				fetch_session(*arena, session, slot, true);
		}
	flush();
}

void Planner::drain_cold()
{
	for (auto &[id, arena] : arenas_)
		for (uint32_t slot = 0; slot < arena->sessions.size(); slot++)
			fetch_session(*arena, arena->sessions[slot], slot, false);
	flush();
}

/*
 * Layer by layer, in which order they are needed. Of a session that is woken the
 * full set or nothing: two halves would hold the memory that either of them needs.
 * What no room is enough for comes as far as it goes.
 */
void Planner::fetch_session(ArenaState &arena, Session &session, uint32_t slot, bool promote)
{
	uint32_t per_slot = arena.geometry().blocks_per_slot(), first = slot * per_slot;
	uint64_t block_bytes = arena.geometry().block_bytes;
	uint32_t unseen = session.nr[cold] + (promote ? session.nr[warm] : 0);
	uint64_t room = hot_room(input_.hot.limit_bytes), all = session.nr[cold] * block_bytes;
	const bool fits = all <= room || all > input_.hot.limit_bytes;
	const bool from_cold = !promote || (fits && !session.fetched_by_request);
	for (uint32_t b = first; b < first + per_slot && unseen && room >= block_bytes; b++) {
		Where where = arena.table.where(b);
		if (where != Where::Cold && (where != Where::Warm || !promote))
			continue;
		unseen--;
		if ((where == Where::Cold && !from_cold) || arena.outside_window(b) ||
		    !arena.movable(b, input_.now_ms, false) || arena.table.ordered(b))
			continue;
		if (where == Where::Warm) {
			if (!input_.may_promote || move_left_ < block_bytes)
				continue;
			move_left_ -= block_bytes;
		}
		pick(arena, b, where == Where::Cold ? Action::Prefetch : Action::Promote);
		room -= block_bytes;
	}
}

} // namespace cxlkv
