/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/planner.h"

#include <algorithm>

namespace cxlkv {

Planner::Planner(Arenas &arenas, const PolicyOptions &options, SessionCounters &counters,
		 const PlanInput &input)
    : arenas_(arenas), options_(options), counters_(counters), input_(input),
      move_left_(input.move_budget_bytes),
      spill_left_(input.cold_available && !input.drain_cold ? input.spill_budget_bytes : 0),
      warm_left_(input.drain_warm ? 0 : minus(input.warm.limit_bytes, input.warm.used_bytes))
{
}

std::vector<Order> Planner::run()
{
	for (auto &[id, arena] : arenas_) {
		arena->age_sessions(input_.now_ms);
		arena->expire_pins(input_.now_ms);
		arena->expire_orders(input_.now_ms);
		arena->learn();
		arena->tidy_queue(Where::Hot);
		arena->tidy_queue(Where::Warm);
	}
	reckon_tenants();
	drop();
	make_tenants_room();
	if (input_.drain_warm)
		drain_warm();
	else
		make_warm_room();
	find_promotable();
	make_hot_room();
	if (input_.drain_cold)
		drain_cold();
	forget_for_room();
	settle_sessions();
	wake();
	prefetch();
	promote();
	return std::move(orders_);
}

/* ---- leaving ---- */

void Planner::drop()
{
	for (auto &[id, arena] : arenas_) {
		std::vector<Extent> later;
		for (const Extent &extent : arena->to_drop) {
			for (uint32_t b = extent.first; b < extent.first + extent.nr; b++) {
				if (arena->table.where(b) == Where::Empty ||
				    arena->table.ordered(b) || !arena->outside_window(b))
					continue;
				if (arena->movable(b, input_.now_ms, false))
					pick(*arena, b, Action::Drop);
				else
					later.push_back({id, b, 1});
			}
		}
		arena->to_drop = std::move(later);
	}
	flush();
}

void Planner::make_warm_room()
{
	const TierRoom &warm = input_.warm;
	if (!warm.limit_bytes)
		return;
	uint64_t used = minus(warm.used_bytes, ordered_bytes(Where::Warm));
	uint64_t soft = used > warm.high_bytes ? used - std::min(warm.low_bytes, used) : 0;
	/* What waits for room needs it in both tiers together: a session that is larger than what
	 * hot can give lies in both. */
	const uint64_t needed = used + input_.hot.used_bytes + input_.wanted_hot_bytes;
	const uint64_t limit = warm.limit_bytes + input_.hot.limit_bytes;
	const uint64_t hard = std::max(minus(used, warm.limit_bytes), minus(needed, limit));
	make_room(Where::Warm, {soft, hard, minus(needed + input_.waking_hot_bytes, limit)});
	flush();
}

/* The best go to what room hot has, the rest to cold. */
void Planner::drain_warm()
{
	uint64_t used = minus(input_.warm.used_bytes, ordered_bytes(Where::Warm));
	uint64_t room = hot_room(input_.hot.high_bytes);
	if (used > room)
		make_room(Where::Warm, {0, used - room, 0});
	flush();
	promote_all();
}

/* Takes blocks of an arena's warm queue while hot has room. */
class Planner::Promoter {
public:
	Promoter(Planner &planner, ArenaState &arena, uint64_t &room)
	    : planner_(planner), arena_(arena), room_(room), bytes_(arena.geometry().block_bytes)
	{
	}

	void visit_soon(uint32_t) {}
	void visit(uint32_t block)
	{
		if (room_ < bytes_ || arena_.table.ordered(block) ||
		    !arena_.movable(block, planner_.input_.now_ms, false))
			return;
		planner_.pick(arena_, block, Action::Promote);
		room_ -= bytes_;
	}
	[[nodiscard]] bool more() const { return room_ >= bytes_; }
	[[nodiscard]] bool enough() const { return !more(); }

private:
	Planner &planner_;
	ArenaState &arena_;
	uint64_t &room_;
	uint64_t bytes_;
};

void Planner::promote_all()
{
	uint64_t room = std::min(hot_room(input_.hot.high_bytes), move_left_);
	for (auto &[id, arena] : arenas_) {
		Promoter promoter(*this, *arena, room);
		for (VictimQueue::Band band :
		     {VictimQueue::Low, VictimQueue::Normal, VictimQueue::Kept})
			arena->scan(Where::Warm, band, promoter);
	}
	flush();
}

void Planner::make_hot_room()
{
	const TierRoom &hot = input_.hot;
	uint64_t wanted = input_.wanted_hot_bytes + draining_bytes() + ordered_bytes(Where::Cold);
	uint64_t used = minus(hot.used_bytes, ordered_bytes(Where::Hot)) +
			std::min(wanted, hot.limit_bytes);
	uint64_t waking = std::min(input_.waking_hot_bytes + waking_bytes(), hot.limit_bytes);
	uint64_t soft = used > hot.high_bytes ? used - std::min(hot.low_bytes, used) : 0;
	/* And the next blocks of who is active. */
	soft = std::max(soft, minus(used + reserve_bytes(), hot.limit_bytes));
	make_room(Where::Hot,
		  {soft, minus(used, hot.limit_bytes), minus(used + waking, hot.limit_bytes)});
	exchange();
	flush();
}

void Planner::make_room(Where tier, const Excess &excess)
{
	const uint64_t hard_bytes = excess.hard;
	uint64_t got = 0;
	for (Reach reach : {Reach::Needed, Reach::Watermark, Reach::Anything}) {
		const Pass pass{tier, reach};
		uint64_t bytes =
			reach == Reach::Watermark ? std::max(excess.soft, hard_bytes) : hard_bytes;
		got += take_queued(pass, VictimQueue::Low, minus(bytes, got));
		got += take_idle(pass, minus(bytes, got));
		/* Who is active keeps what it has while an idle session's blocks need only wait. */
		if (pass.hard() || !idle_held_)
			got += take_queued(pass, VictimQueue::Normal, minus(bytes, got));
	}
	got += take_queued({tier, Reach::Anything}, VictimQueue::Kept, minus(hard_bytes, got));
	for (VictimQueue::Band band : {VictimQueue::Low, VictimQueue::Normal, VictimQueue::Kept})
		got += take_queued({tier, Reach::Waking}, band, minus(hard_bytes, got));
	take_for_wakes(tier, minus(excess.waking, got));
}

void Planner::take_for_wakes(Where tier, uint64_t bytes)
{
	uint64_t got = 0;
	for (Reach reach : {Reach::Watermark, Reach::Anything}) {
		const Pass pass{tier, reach, true};
		got += take_queued(pass, VictimQueue::Low, minus(bytes, got));
		got += take_idle(pass, minus(bytes, got));
		got += take_queued(pass, VictimQueue::Normal, minus(bytes, got));
	}
	take_queued({tier, Reach::Anything, true}, VictimQueue::Kept, minus(bytes, got));
}

/* The oldest eligible blocks of an arena, until they come to the bytes asked for. */
class Planner::Collector {
public:
	Collector(const Planner &planner, ArenaState &arena, const Pass &pass,
		  VictimQueue::Band band, uint64_t bytes, std::vector<Victim> &found)
	    : planner_(planner), arena_(arena), pass_(pass), pins_(band != VictimQueue::Normal),
	      found_(found), wanted_(found.size() + (bytes - 1) / arena.geometry().block_bytes + 1)
	{
	}

	void visit_soon(uint32_t block) { arena_.score_soon(block); }
	void visit(uint32_t block)
	{
		if (planner_.eligible(arena_, block, pass_))
			found_.push_back({&arena_, block,
					  pins_ ? arena_.table.priority(block) : uint8_t{0},
					  arena_.priority(block)});
	}
	[[nodiscard]] bool more() const { return found_.size() < wanted_; }
	/* Of a bucket some more, as the best of it by exact priority are taken. */
	[[nodiscard]] bool enough() const { return found_.size() >= wanted_ + choice; }

private:
	static constexpr size_t choice = 4096;

	const Planner &planner_;
	ArenaState &arena_;
	const Pass &pass_;
	bool pins_;
	std::vector<Victim> &found_;
	size_t wanted_;
};

/* Collects the oldest of every arena, then takes the best of all by exact priority. */
uint64_t Planner::take_queued(const Pass &pass, VictimQueue::Band band, uint64_t bytes)
{
	if (!bytes)
		return 0;
	std::vector<Victim> found;
	for (auto &[id, arena] : arenas_) {
		if (!counts(*arena))
			continue;
		Collector collector(*this, *arena, pass, band, bytes, found);
		arena->scan(pass.tier, band, collector);
	}
	std::sort(found.begin(), found.end(), [](const Victim &a, const Victim &b) {
		if (a.pinned != b.pinned)
			return a.pinned < b.pinned;
		/* Among equals the tail of a sequence goes before its head. */
		return a.priority != b.priority ? a.priority > b.priority : a.block > b.block;
	});
	uint64_t got = 0;
	for (const Victim &victim : found) {
		if (got >= bytes)
			break;
		if (at_floor(*victim.arena, victim.block, pass))
			continue; /* by what was taken before it */
		if (take(*victim.arena, victim.block, pass.tier))
			got += victim.arena->geometry().block_bytes;
	}
	return got;
}

bool Planner::eligible(ArenaState &arena, uint32_t block, const Pass &pass) const
{
	uint32_t slot = arena.geometry().slot_of(block);
	const Session &session = arena.sessions[slot];
	if (!pass.waking() && session.waking(input_.now_ms))
		return false;
	if (pass.for_wakes && session.in_use())
		return false;
	if (!arena.movable(block, input_.now_ms, !pass.hard()) || arena.table.ordered(block))
		return false;
	if (!session.life.active())
		return true;
	if (!pass.waking() && (arena.being_written(block) || at_floor(arena, block, pass)))
		return false;
	if (pass.reach != Reach::Watermark)
		return true;
	return arena.promise(block) < options_.demote_score && arena.phase(slot) != Phase::Prefill;
}

bool Planner::at_floor(const ArenaState &arena, uint32_t block, const Pass &pass) const
{
	return options_.head_floor > 0 && pass.tier == Where::Hot && !pass.waking() &&
	       arena.at_floor(block);
}

/* Orders a block out of the tier, as far as budgets and the tier below allow. */
bool Planner::take(ArenaState &arena, uint32_t block, Where tier)
{
	if (arena.table.ordered(block))
		return false; /* two entries of one block */
	if (arena.outside_window(block))
		pick(arena, block, Action::Drop);
	else if (tier == Where::Hot && may_demote(arena)) {
		if (!demote(arena, block))
			return false; /* the move budget is used up: the next plan has another */
	} else if (!spill(arena, block))
		return false;
	const Session &session = arena.sessions[arena.geometry().slot_of(block)];
	counters_.nr_active_evicted_blocks += session.in_use();
	return true;
}

bool Planner::may_demote(const ArenaState &arena)
{
	const uint64_t bytes = arena.geometry().block_bytes;

	return arena.warm_allowed && warm_left_ >= bytes && tenant_left(arena).warm >= bytes;
}

bool Planner::demote(ArenaState &arena, uint32_t block)
{
	const uint64_t bytes = arena.geometry().block_bytes;
	if (!may_demote(arena) || move_left_ < bytes)
		return false;
	warm_left_ -= bytes;
	tenant_left(arena).warm -= bytes;
	move_left_ -= bytes;
	pick(arena, block, Action::Demote);
	return true;
}

bool Planner::spill(ArenaState &arena, uint32_t block)
{
	const uint64_t bytes = arena.geometry().block_bytes;
	TenantLeft &tenant = tenant_left(arena);
	if (spill_left_ < bytes)
		return false;
	if (tenant.cold < bytes) {
		tenant.cold_lacks = true;
		return false;
	}
	spill_left_ -= bytes;
	tenant.cold -= bytes;
	pick(arena, block, Action::Spill);
	return true;
}

/* ---- coming back ---- */

uint64_t Planner::hot_room(uint64_t limit) const
{
	uint64_t taken = input_.hot.used_bytes + input_.wanted_hot_bytes + input_.waking_hot_bytes +
			 ordered_bytes(Where::Cold) + coming_bytes_;
	return minus(limit, taken);
}

/* Guesses only use room that is free: they evict nothing. */
void Planner::prefetch()
{
	std::vector<Pick> wishes;
	for (auto &[id, arena] : arenas_) {
		wishes.insert(wishes.end(), arena->to_prefetch.begin(), arena->to_prefetch.end());
		arena->to_prefetch.clear();
	}
	std::stable_sort(wishes.begin(), wishes.end(),
			 [](const Pick &a, const Pick &b) { return a.rank < b.rank; });
	uint64_t room = hot_room(input_.hot.high_bytes);
	for (const Pick &wish : wishes) {
		ArenaState &arena = *arenas_.at(wish.arena);
		uint64_t bytes = arena.geometry().block_bytes;
		if (room < bytes)
			break;
		if (arena.table.where(wish.block) != Where::Cold ||
		    !arena.movable(wish.block, input_.now_ms, false) ||
		    arena.table.ordered(wish.block) || arena.outside_window(wish.block))
			continue;
		pick(arena, wish.block, Action::Prefetch);
		room -= bytes;
	}
	flush();
}

/* What was used in warm since the last plan, or found no room in it. */
void Planner::find_promotable()
{
	for (auto &[id, arena] : arenas_) {
		for (const auto [b, gap] : arena->to_promote) {
			if (!input_.may_promote || arena->table.where(b) != Where::Warm ||
			    arena->table.ordered(b) || !arena->movable(b, input_.now_ms, true))
				continue;
			const double promise = arena->promise(b);
			/* Uses are rarer where steps are shorter than samples: who uses it knows.
			 */
			const bool told = is_told(*arena, b);
			const bool again = told ? gap != never_used : arena->used_again(b);
			if (promise >= options_.promote_score || (told && arena->knows(b)))
				promotable_.push_back({arena.get(), b, 0, promise, gap, again});
		}
		arena->to_promote.clear();
	}
	std::sort(promotable_.begin(), promotable_.end(), [](const Victim &a, const Victim &b) {
		if (a.again != b.again)
			return a.again;
		if (a.priority != b.priority)
			return a.priority > b.priority;
		if (a.arena != b.arena)
			return a.arena->id() < b.arena->id();
		return a.block != b.block ? a.block < b.block : a.gap < b.gap;
	});
	auto again = std::unique(promotable_.begin(), promotable_.end(),
				 [](const Victim &a, const Victim &b) {
					 return a.arena == b.arena && a.block == b.block;
				 });
	promotable_.erase(again, promotable_.end());
	leave_once_used();
}

/*
 * What was used only once may have room that is free. But above the low watermark it
 * comes only where there is some for all of it: of a scan, some would take for good
 * the room of what is used again.
 */
void Planner::leave_once_used()
{
	const auto once = std::find_if(promotable_.begin(), promotable_.end(),
				       [](const Victim &v) { return !v.again; });
	const uint64_t room = hot_room(input_.hot.high_bytes),
		       spare = hot_room(input_.hot.low_bytes);
	uint64_t bytes = 0;
	auto first_left = promotable_.end();

	for (auto v = promotable_.begin(); v != promotable_.end(); ++v) {
		bytes += v->arena->geometry().block_bytes;
		if (bytes > spare && first_left == promotable_.end())
			first_left = v;
	}
	if (bytes > room)
		promotable_.erase(std::max(once, first_left), promotable_.end());
}

/*
 * Demote before promote: where hot is full, what promises most in warm takes the
 * place of what promises least there. At most half of the move budget, the other
 * half is for the promotions.
 */
void Planner::exchange()
{
	uint64_t room = hot_room(input_.hot.high_bytes) + ordered_bytes(Where::Hot);
	uint64_t left = move_left_ / 2, wanted = 0;
	for (const Victim &come : promotable_)
		wanted += come.arena->geometry().block_bytes;
	if (wanted <= room || !left)
		return;
	const Pass pass{Where::Hot, Reach::Needed};
	std::vector<Victim> found;
	for (auto &[id, arena] : arenas_) {
		Collector collector(*this, *arena, pass, VictimQueue::Normal,
				    std::min(wanted - room, left), found);
		arena->scan(Where::Hot, VictimQueue::Normal, collector);
	}
	for (Victim &go : found)
		go.priority =
			go.arena->sessions[go.arena->geometry().slot_of(go.block)].life.active()
				? go.arena->promise(go.block)
				: 0;
	/* Of those that promise next to nothing, who was used last has been seen for the shortest.
	 */
	std::sort(found.begin(), found.end(), [this](const Victim &a, const Victim &b) {
		const double next_to_nothing = options_.demote_score / 10;
		const double pa = std::max(a.priority, next_to_nothing),
			     pb = std::max(b.priority, next_to_nothing);
		if (pa != pb)
			return pa < pb;
		const uint32_t ua = a.arena->unused_for(a.block), ub = b.arena->unused_for(b.block);
		return ua != ub ? ua > ub : a.block > b.block;
	});
	auto go = found.begin();
	for (const Victim &come : promotable_) {
		const uint64_t bytes = come.arena->geometry().block_bytes;
		for (; room < bytes; go++) {
			if (go == found.end() || !makes_way(*go, come))
				return;
			const uint64_t freed = go->arena->geometry().block_bytes;
			if (left < freed || !demote(*go->arena, go->block))
				return;
			room += freed;
			left -= freed;
		}
		room -= bytes;
	}
}

/* The engine says what it uses; but a prefill just reads what it wrote. */
bool Planner::is_told(const ArenaState &arena, uint32_t block) const
{
	const uint32_t slot = arena.geometry().slot_of(block);

	return arena.sessions[slot].scored && arena.phase(slot) != Phase::Prefill;
}

/*
 * Worth two moves: what comes promises several times what goes. What is guessed of
 * both from a few uses is far off, and with less than that every fourth move in
 * bench-peers' zipf was a wrong one, for no more reads from hot. And it was used more
 * than once, or a scan would send others away: within a few steps where it was only
 * seen to be touched, and where the engine tells, sooner after the time before than
 * what goes was not used by now (the rule of LIRS, Jiang and Zhang, SIGMETRICS 2002).
 */
bool Planner::makes_way(const Victim &go, const Victim &come) const
{
	constexpr double several = 6;

	return come.again && go.priority * several < come.priority &&
	       (!is_told(*come.arena, come.block) || come.gap <= go.arena->age(go.block));
}

void Planner::promote()
{
	uint64_t room = std::min(hot_room(input_.hot.high_bytes), move_left_);
	for (const Victim &v : promotable_) {
		uint64_t bytes = v.arena->geometry().block_bytes;
		if (v.arena->table.ordered(v.block))
			continue; /* by a later step of this plan */
		if (room < bytes) {
			v.arena->to_promote.push_back(
				{v.block, v.gap}); /* the next plan may have it */
			continue;
		}
		pick(*v.arena, v.block, Action::Promote);
		room -= bytes;
	}
	flush();
}

/* ---- orders ---- */

void Planner::pick(ArenaState &arena, uint32_t block, Action action)
{
	if (action == Action::Promote) /* a Prefetch counts through ordered_bytes(Cold) */
		coming_bytes_ += arena.geometry().block_bytes;
	arena.order(block, input_.now_ms);
	picks_[{arena.id(), action}].push_back({arena.id(), block, next_rank_++});
}

void Planner::flush()
{
	for (auto &[key, picks] : picks_)
		coalesce(key.second, std::move(picks), arenas_.at(key.first)->extent_limits(),
			 orders_);
	picks_.clear();
}

uint64_t Planner::ordered_bytes(Where where) const
{
	uint64_t bytes = 0;
	for (const auto &[id, arena] : arenas_)
		if (counts(*arena))
			bytes += arena->ordered_bytes(where);
	return bytes;
}

/* What sessions that are woken by this plan still lack in hot, without what is on its way. */
uint64_t Planner::waking_bytes() const
{
	uint64_t bytes = 0;
	for (const auto &[id, arena] : arenas_)
		for (const Session &session : arena->sessions)
			if (session.waking(input_.now_ms) && !session.fetched_by_request)
				bytes += session.nr[as_index(Where::Cold)] *
					 uint64_t{arena->geometry().block_bytes};
	return minus(bytes, ordered_bytes(Where::Cold));
}

/* What the next plans fetch of a cold tier that is to become empty. */
uint64_t Planner::draining_bytes() const
{
	constexpr uint64_t a_plan = 64u << 20;
	uint64_t bytes = 0;
	if (!input_.drain_cold)
		return 0;
	for (const auto &[id, arena] : arenas_)
		for (const Session &session : arena->sessions)
			bytes += session.nr[as_index(Where::Cold)] *
				 uint64_t{arena->geometry().block_bytes};
	return std::min(minus(bytes, ordered_bytes(Where::Cold)), a_plan);
}

} // namespace cxlkv
