/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/policy.h"

#include "core/arena_state.h"
#include "core/planner.h"

#include <algorithm>

namespace cxlkv {

struct Policy::Impl {
	PolicyOptions options;
	StepClock clock;
	SessionCounters counters;
	Arenas arenas;
	std::array<uint64_t, 5> accesses_before{}; /* of arenas that are gone */

	ArenaState *find(uint32_t arena) const
	{
		auto it = arenas.find(arena);
		return it == arenas.end() ? nullptr : it->second.get();
	}
	Session *session(uint32_t arena, uint32_t slot) const
	{
		ArenaState *state = find(arena);
		return state && slot < state->sessions.size() ? &state->sessions[slot] : nullptr;
	}
};

Policy::Policy(const PolicyOptions &options) : impl_(std::make_unique<Impl>())
{
	impl_->options = options;
}

Policy::~Policy() = default;

void Policy::set_options(const PolicyOptions &options)
{
	impl_->options = options;
	for (auto &[id, arena] : impl_->arenas)
		arena->set_options(options);
}

void Policy::add_arena(uint32_t arena, const Geometry &geometry)
{
	impl_->arenas[arena] = std::make_unique<ArenaState>(arena, geometry, impl_->options,
							    impl_->clock, impl_->counters);
}

void Policy::remove_arena(uint32_t arena)
{
	if (const ArenaState *state = impl_->find(arena))
		for (size_t i = 0; i < impl_->accesses_before.size(); i++)
			impl_->accesses_before[i] += state->nr_accesses[i];
	impl_->arenas.erase(arena);
}

void Policy::set_tenant(uint32_t arena, uint32_t tenant)
{
	if (ArenaState *state = impl_->find(arena))
		state->tenant = tenant;
}

void Policy::set_warm_allowed(uint32_t arena, bool allowed)
{
	if (ArenaState *state = impl_->find(arena))
		state->warm_allowed = allowed;
}

void Policy::open_session(uint32_t arena, uint32_t slot, uint64_t now_ms)
{
	Session *session = impl_->session(arena, slot);

	if (!session)
		return;
	session->opened = true;
	session->life.use(now_ms);
}

void Policy::reopen_session(uint32_t arena, uint32_t slot)
{
	if (Session *session = impl_->session(arena, slot))
		session->opened = true;
}

void Policy::touch_session(uint32_t arena, uint32_t slot, uint64_t now_ms)
{
	if (Session *session = impl_->session(arena, slot))
		session->life.use(now_ms);
}

bool Policy::is_active(uint32_t arena, uint32_t slot) const
{
	const Session *session = impl_->session(arena, slot);

	return session && session->life.active();
}

void Policy::close_session(uint32_t arena, uint32_t slot, uint64_t now_ms)
{
	Session *session = impl_->session(arena, slot);

	if (!session)
		return;
	/* What is left of it was made without a session. */
	if (session->empty())
		*session = Session();
	else
		session->life.park(now_ms);
}

ActiveLoad Policy::load(const uint32_t *tenant, uint32_t but_arena, uint32_t but_slot,
			uint64_t now_ms) const
{
	ActiveLoad load;

	for (const auto &[id, arena] : impl_->arenas) {
		if (tenant && arena->tenant != *tenant)
			continue;
		for (uint32_t slot = 0; slot < arena->sessions.size(); slot++) {
			const Session &session = arena->sessions[slot];
			if (!session.in_use() || (id == but_arena && slot == but_slot))
				continue;
			load.first_used_ms =
				load.nr ? std::min(load.first_used_ms, session.life.used_ms())
					: session.life.used_ms();
			load.nr++;
			load.bytes +=
				uint64_t{arena->geometry().block_bytes} *
				(session.nr[as_index(Where::Hot)] +
				 session.nr[as_index(Where::Warm)] +
				 (session.waking(now_ms) ? session.nr[as_index(Where::Cold)] : 0));
			load.reserve_bytes += arena->reserve_bytes();
		}
	}
	return load;
}

SessionStats Policy::session_stats() const
{
	const SessionCounters &c = impl_->counters;
	SessionStats stats;

	for (const auto &[id, arena] : impl_->arenas)
		for (const Session &session : arena->sessions)
			stats.nr_by_state[static_cast<size_t>(session.life.state())]++;
	stats.nr_dropped = c.nr_dropped;
	stats.nr_active_evicted_blocks = c.nr_active_evicted_blocks;
	return stats;
}

void Policy::hint(uint32_t arena, const cxl_kv_hint &hint, uint64_t now_ms)
{
	if (ArenaState *state = impl_->find(arena))
		state->hint(hint, now_ms);
}

void Policy::fetched_by_request(uint32_t arena, uint32_t slot)
{
	if (Session *session = impl_->session(arena, slot))
		session->fetched_by_request = true;
}

void Policy::prefetch(uint32_t arena, uint32_t slot, uint32_t position, uint32_t window_tokens)
{
	ArenaState *state = impl_->find(arena);

	if (state && slot < state->sessions.size())
		state->prefetch(slot, position, window_tokens);
}

void Policy::sample(uint32_t arena, uint32_t first, uint64_t touched, uint64_t written,
		    uint64_t now_ms)
{
	if (ArenaState *state = impl_->find(arena))
		state->sample(first, touched, written, now_ms);
}

void Policy::interval(uint32_t arena)
{
	if (ArenaState *state = impl_->find(arena))
		state->interval();
}

void Policy::moved(const Extent &extent, Where where, uint64_t now_ms)
{
	if (ArenaState *state = impl_->find(extent.arena))
		state->moved(extent.first, extent.nr, where, now_ms);
}

std::vector<Order> Policy::plan(const PlanInput &input)
{
	return Planner(impl_->arenas, impl_->options, impl_->counters, input).run();
}

std::vector<HeadStats> Policy::heads(uint32_t arena) const
{
	const ArenaState *state = impl_->find(arena);
	return state ? state->heads() : std::vector<HeadStats>();
}

std::array<uint64_t, 5> Policy::accesses() const
{
	std::array<uint64_t, 5> sum = impl_->accesses_before;

	for (const auto &[id, arena] : impl_->arenas)
		for (size_t i = 0; i < sum.size(); i++)
			sum[i] += arena->nr_accesses[i];
	return sum;
}

Phase Policy::phase(uint32_t arena, uint32_t slot) const
{
	const ArenaState *state = impl_->find(arena);
	return state ? state->phase(slot) : Phase::Unknown;
}

double Policy::score(uint32_t arena, uint32_t block) const
{
	const ArenaState *state = impl_->find(arena);
	return state ? state->score(block) : 0;
}

} // namespace cxlkv
