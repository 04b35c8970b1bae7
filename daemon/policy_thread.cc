/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy_thread.h"

#include "base/log.h"

#include <algorithm>
#include <chrono>

namespace cxlkv {

namespace {

constexpr size_t kHintsATick = 1 << 16;        /* an arena; the rest comes with the next tick */
constexpr uint64_t kNewBytesATick = 16u << 20; /* of which it is looked where they are */
/* While attention is recorded: a ring has room for a few steps. */
constexpr std::chrono::milliseconds kAttentionInterval(1);

uint64_t now_ms()
{
	using namespace std::chrono;
	return static_cast<uint64_t>(
		duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count());
}

} // namespace

PolicyThread::PolicyThread(const PolicyThreadOptions &options, const PolicyOptions &policy,
			   ArenaTable &arenas, FaultServer &faults, Mover &mover, Sampler &sampler,
			   const LatencyThread &latency, const Placement &placement,
			   KmodDevice *module, Recorder &recorder)
    : options_(options), arenas_(arenas), faults_(faults), mover_(mover), sampler_(sampler),
      latency_(latency), placement_(placement), module_(module), recorder_(recorder),
      policy_(policy), sessions_(policy.session)
{
}

void PolicyThread::run()
{
	using Clock = std::chrono::steady_clock;
	std::unique_lock lock(mutex_);
	auto last = Clock::now();

	while (!stop_) {
		const auto interval = std::chrono::milliseconds(options_.interval_ms);
		wake_.wait_for(lock, recorder_.attention() ? kAttentionInterval : interval,
			       [&] { return stop_ || kicked_; });
		if (stop_)
			break;
		const bool due = kicked_ || Clock::now() - last >= interval;
		kicked_ = false;
		lock.unlock();
		if (due) {
			last = Clock::now();
			tick();
		} else {
			take_hints();
		}
		lock.lock();
	}
}

void PolicyThread::set_options(const PolicyThreadOptions &options, const PolicyOptions &policy)
{
	std::scoped_lock lock(policy_mutex_, mutex_);
	options_ = options;
	samples_.clear(); /* the module is told the interval of the options */
	policy_.set_options(policy);
	sessions_ = policy.session;
}

void PolicyThread::stop()
{
	std::lock_guard lock(mutex_);
	stop_ = true;
	wake_.notify_all();
}

void PolicyThread::kick()
{
	std::lock_guard lock(mutex_);
	kicked_ = true;
	wake_.notify_all();
}

void PolicyThread::attach(const std::shared_ptr<Arena> &arena,
			  const std::vector<cxl_kv_hint> &hints)
{
	{
		std::lock_guard lock(policy_mutex_);
		policy_.add_arena(arena->options.number, arena->geometry);
		for (const cxl_kv_hint &known : hints)
			policy_.hint(arena->options.number, known, now_ms());
	}
	recheck(arena, {arena->options.number, 0, arena->geometry.nr_blocks()});
}

void PolicyThread::detach(uint32_t arena)
{
	std::lock_guard lock(policy_mutex_);
	policy_.remove_arena(arena);
	samples_.erase(arena);
	recorder_.detach(arena);
}

void PolicyThread::take_hints()
{
	if (!recorder_.active())
		return;
	std::lock_guard lock(policy_mutex_);
	drain_hints(now_ms());
}

void PolicyThread::hint(Arena &arena, const cxl_kv_hint &hint)
{
	std::lock_guard lock(policy_mutex_);
	hint_locked(arena, hint, now_ms());
}

void PolicyThread::hint_locked(Arena &arena, const cxl_kv_hint &hint, uint64_t now)
{
	/* Blocks that were made, and hints that were sent, before the hint came before it: a
	 * session is not parked, then active again when the tick tells of its last block. */
	apply_moves(now);
	drain_hints(now);
	if (recorder_.active())
		recorder_.hint(arena, hint, now);
	policy_.hint(arena.options.number, hint, now);
}

void PolicyThread::drain(Where tier, bool on)
{
	(tier == Where::Warm ? draining_warm_ : draining_cold_) = on;
	if (tier == Where::Warm)
		faults_.set_memory_limit(options_.hot_limit_bytes +
					 (on ? 0 : options_.warm_limit_bytes));
	log_info("{} of the {} tier", on ? "drain" : "end of the drain",
		 tier == Where::Warm ? "warm" : "cold");
	kick();
}

void PolicyThread::open_session(const Arena &arena, uint32_t slot)
{
	std::lock_guard lock(policy_mutex_);
	policy_.open_session(arena.options.number, slot, now_ms());
}

void PolicyThread::reopen_session(const Arena &arena, uint32_t slot)
{
	std::lock_guard lock(policy_mutex_);
	policy_.reopen_session(arena.options.number, slot);
}

void PolicyThread::touch_session(const Arena &arena, uint32_t slot)
{
	std::lock_guard lock(policy_mutex_);
	policy_.touch_session(arena.options.number, slot, now_ms());
}

bool PolicyThread::is_active(const Arena &arena, uint32_t slot) const
{
	std::lock_guard lock(policy_mutex_);
	return policy_.is_active(arena.options.number, slot);
}

void PolicyThread::close_session(const Arena &arena, uint32_t slot)
{
	const uint64_t now = now_ms();
	std::lock_guard lock(policy_mutex_);

	apply_moves(now); /* its blocks are gone */
	policy_.close_session(arena.options.number, slot, now);
}

void PolicyThread::prefetch(const Arena &arena, uint32_t slot, uint32_t position,
			    uint32_t window_tokens)
{
	{
		std::lock_guard lock(policy_mutex_);
		apply_moves(now_ms());
		policy_.prefetch(arena.options.number, slot, position, window_tokens);
	}
	kick();
}

uint32_t PolicyThread::admission_retry_ms(const Arena &arena, uint32_t slot, uint64_t bytes) const
{
	std::lock_guard lock(policy_mutex_);
	return admission_locked(arena, slot, bytes, now_ms());
}

uint32_t PolicyThread::wake_session(Arena &arena, uint32_t slot, uint64_t bytes)
{
	const uint64_t now = now_ms();
	cxl_kv_hint wake{};
	std::lock_guard lock(policy_mutex_);

	if (uint32_t retry_ms = admission_locked(arena, slot, bytes, now))
		return retry_ms;
	wake.kind = CXL_KV_HINT_WAKE;
	wake.slot = slot;
	hint_locked(arena, wake, now);
	policy_.fetched_by_request(arena.options.number, slot);
	return 0;
}

uint32_t PolicyThread::admission_locked(const Arena &arena, uint32_t slot, uint64_t bytes,
					uint64_t now) const
{
	const uint32_t tenant = arena.tenant, number = arena.options.number;
	const uint64_t need = bytes + uint64_t{sessions_.reserve_blocks} *
					      arena.geometry.nr_heads() *
					      arena.geometry.block_bytes;
	const uint64_t limit = options_.hot_limit_bytes + options_.warm_limit_bytes;

	return std::max(cxlkv::admission_retry_ms(policy_.load(nullptr, number, slot, now), limit,
						  need, now, sessions_),
			cxlkv::admission_retry_ms(policy_.load(&tenant, number, slot, now),
						  arena.tenant_limit_bytes, need, now, sessions_));
}

SessionStats PolicyThread::session_stats() const
{
	std::lock_guard lock(policy_mutex_);
	return policy_.session_stats();
}

void PolicyThread::recheck(std::shared_ptr<Arena> arena, Extent extent)
{
	std::lock_guard lock(mutex_);
	rechecks_.push_back({std::move(arena), extent});
}

std::vector<HeadStats> PolicyThread::heads(uint32_t arena) const
{
	std::lock_guard lock(policy_mutex_);
	return policy_.heads(arena);
}

std::array<uint64_t, 5> PolicyThread::accesses() const
{
	std::lock_guard lock(policy_mutex_);
	return policy_.accesses();
}

std::array<uint32_t, 3> PolicyThread::phases(const ArenaEntry &entry) const
{
	std::array<uint32_t, 3> nr{};
	std::lock_guard lock(policy_mutex_);

	for (uint32_t slot = 0; slot < entry.open_slots.size(); slot++)
		if (entry.open_slots[slot])
			nr[static_cast<size_t>(policy_.phase(entry.arena->options.number, slot))]++;
	return nr;
}

void PolicyThread::tick()
{
	const uint64_t now = now_ms();
	const auto warm_allowed = ask_cpusets(now);
	std::vector<Order> orders;
	look_at_new();
	{
		std::lock_guard lock(policy_mutex_);
		drain_hints(now);
		drain_samples(now);
		apply_moves(now);
		place_sessions();
		expire_leases(now);
		for (const auto &entry : arenas_.all())
			policy_.set_tenant(entry->arena->options.number, entry->arena->tenant);
		for (auto [arena, allowed] : warm_allowed)
			policy_.set_warm_allowed(arena, allowed);
		if (options_.enabled || draining_warm_ || draining_cold_) {
			const FaultStats stats = faults_.stats();
			const PlanInput input = plan_input(stats, now);
			orders = policy_.plan(input);
			tell_starved(stats, input);
		}
	}
	for (const Order &order : orders)
		give(order);
}

void PolicyThread::tell_starved(const FaultStats &stats, const PlanInput &input)
{
	const uint64_t nr_no_space = stats.store.nr_no_space;
	const bool refused = nr_no_space != std::exchange(nr_no_space_, nr_no_space);

	if (on_starved_ && input.wanted_hot_bytes && (refused || !input.cold_available))
		on_starved_(input.wanted_hot_bytes);
}

/* Asks the kernel, and that without the lock. */
void PolicyThread::look_at_new()
{
	std::vector<std::pair<std::shared_ptr<Arena>, Extent>> extents;
	uint64_t left = kNewBytesATick;
	{
		std::lock_guard lock(policy_mutex_);
		while (left && !new_.empty()) {
			Extent &from = new_.front();
			const auto entry = arenas_.find(from.arena);
			const uint64_t bytes = entry ? entry->arena->geometry.block_bytes : 1;
			const auto nr = static_cast<uint32_t>(
				std::clamp<uint64_t>(left / bytes, 1, from.nr));
			if (entry) {
				extents.push_back({entry->arena, {from.arena, from.first, nr}});
				left -= std::min(left, nr * bytes);
			}
			from.first += nr;
			from.nr -= nr;
			if (!from.nr || !entry)
				new_.pop_front();
		}
	}
	for (const auto &[arena, extent] : extents) {
		const Placement::Seen seen = placement_.look(*arena, extent);
		for (const Extent &elsewhere : seen.elsewhere)
			recheck(arena, elsewhere);
		std::lock_guard lock(policy_mutex_);
		new_.insert(new_.end(), seen.busy.begin(), seen.busy.end());
	}
}

/*
 * Arenas, and whether they may have blocks in warm. An operator changes that, now
 * and then: a look a second is enough, and one without a lock, as it reads files.
 */
std::vector<std::pair<uint32_t, bool>> PolicyThread::ask_cpusets(uint64_t now)
{
	constexpr uint64_t every_ms = 1000;
	std::vector<std::pair<uint32_t, bool>> answers;

	if (!mover_.usable() || now < cpusets_asked_ms_ + every_ms)
		return answers;
	cpusets_asked_ms_ = now;
	for (const auto &entry : arenas_.all())
		answers.emplace_back(entry->arena->options.number,
				     mover_.may_demote(*entry->arena));
	return answers;
}

void PolicyThread::drain_hints(uint64_t now)
{
	for (const auto &entry : arenas_.all()) {
		Arena &arena = *entry->arena;
		auto hints = entry->module_id ? arena.accept_hints(module_->read_hints(
							entry->module_id, kHintsATick))
					      : arena.drain_hints(kHintsATick);
		for (const cxl_kv_hint &hint : hints) {
			policy_.hint(arena.options.number, hint, now);
			if (recorder_.active())
				recorder_.hint(arena, hint, now);
		}
	}
}

void PolicyThread::apply_moves(uint64_t now)
{
	std::vector<Recheck> rechecks;
	{
		std::lock_guard lock(mutex_);
		rechecks.swap(rechecks_);
	}
	for (const Moved &moved : faults_.drain_moved()) {
		policy_.moved(moved.extent, moved.where, now);
		note_new(moved);
		if (on_moved_)
			on_moved_(moved.extent);
	}
	for (const Recheck &r : rechecks) {
		if (on_moved_)
			on_moved_(r.extent);
		/* Runs of blocks in the same place. */
		uint32_t end = r.extent.first + r.extent.nr;
		for (uint32_t first = r.extent.first, next; first < end; first = next) {
			Where where = r.arena->where(first);
			for (next = first + 1; next < end && r.arena->where(next) == where; next++)
				;
			policy_.moved({r.extent.arena, first, next - first}, where, now);
		}
	}
}

void PolicyThread::note_new(const Moved &moved)
{
	const Extent &extent = moved.extent;

	if (!placement_.usable() || (moved.where != Where::Hot && moved.where != Where::Warm))
		return;
	append(new_, extent);
}

/*
 * A session that decodes makes its next blocks hot; while it prefilled they went to
 * warm, unless that is to become empty. They do so again while more is made than the
 * mover sends down: hot has a limit, and what it is above that would have to move.
 */
void PolicyThread::place_sessions()
{
	if (!placement_.usable())
		return;
	const bool full = overflows() && !draining_warm_;
	for (const auto &entry : arenas_.all()) {
		Arena &arena = *entry->arena;
		for (uint32_t slot = 0; slot < entry->open_slots.size(); slot++) {
			bool hot = draining_warm_ ||
				   policy_.phase(arena.options.number, slot) == Phase::Decode;
			if (!entry->open_slots[slot] || !hot)
				continue;
			if (auto placed = placement_.place_slot(arena, slot,
								full ? Where::Warm : Where::Hot);
			    !placed)
				log_warning("arena {}: {}", arena.options.number,
					    placed.error().what);
		}
	}
}

/* Hot is above its limit, or not yet below its watermark since, and warm has room. */
bool PolicyThread::overflows()
{
	const auto [hot, warm] = held_bytes();
	const TierRoom room = room_of(hot, options_.hot_limit_bytes);

	hot_full_ = hot > (hot_full_ ? room.high_bytes : room.limit_bytes);
	return hot_full_ && warm < options_.warm_limit_bytes;
}

/* In thirds of the limit, which is how the words count. */
void PolicyThread::expire_leases(uint64_t now)
{
	if (!options_.lease_limit_ms || now - leases_aged_ms_ < options_.lease_limit_ms / 3)
		return;
	leases_aged_ms_ = now;
	for (const auto &entry : arenas_.all())
		if (uint64_t nr = entry->arena->age_leases()) {
			nr_expired_leases_ += nr;
			log_warning("arena {}: {} leases were held for more than {} ms and have "
				    "ended",
				    entry->arena->options.number, nr, options_.lease_limit_ms);
		}
}

/* Of all arenas, in hot and in warm. */
std::pair<uint64_t, uint64_t> PolicyThread::held_bytes() const
{
	uint64_t hot = 0, warm = 0;

	for (const auto &entry : arenas_.all()) {
		hot += entry->arena->bytes.hot;
		warm += entry->arena->bytes.warm;
	}
	return {hot, warm};
}

PlanInput PolicyThread::plan_input(const FaultStats &stats, uint64_t now) const
{
	const auto [hot, warm] = held_bytes();
	uint64_t block_bytes = 0;
	PlanInput input;

	for (const auto &entry : arenas_.all())
		block_bytes = std::max<uint64_t>(block_bytes, entry->arena->geometry.block_bytes);
	uint64_t spilling = spilling_bytes_.load(), moving = moving_bytes_.load();
	/* What is on its way out is counted as there: the policy knows its own orders. */
	input.now_ms = now;
	input.warm = room_of(warm, options_.warm_limit_bytes);
	input.hot = room_of(hot, options_.hot_limit_bytes);
	input.cold_available = stats.store.used_bytes < stats.store.capacity_bytes;
	input.wanted_hot_bytes = stats.wanted.bytes;
	input.waking_hot_bytes = stats.wanted.waking_bytes;
	input.drain_warm = draining_warm_;
	input.drain_cold = draining_cold_;
	input.may_promote = latency_.may_promote();
	input.spill_budget_bytes =
		options_.max_spill_bytes - std::min(options_.max_spill_bytes, spilling);
	/* What the mover, which keeps the rate, has before it: some ticks' worth, and where that is
	 * little, two blocks, for an exchange. */
	const uint64_t a_tick = options_.move_MBps * 1000 * options_.interval_ms;
	const uint64_t ahead = std::max(4 * a_tick, 2 * block_bytes);
	input.move_budget_bytes = mover_.usable() ? ahead - std::min(ahead, moving) : 0;
	add_tenants(input, stats);
	return input;
}

TierRoom PolicyThread::room_of(uint64_t used, uint64_t limit) const
{
	return {used, limit, limit / 1000 * options_.high_permil,
		limit / 1000 * options_.low_permil};
}

void PolicyThread::add_tenants(PlanInput &input, const FaultStats &stats) const
{
	for (const Quota &quota : options_.quotas) {
		const size_t number = input.tenants.size();
		uint64_t hot = 0, warm = 0;
		TenantRoom room;
		for (const auto &entry : arenas_.all()) {
			const Arena &arena = *entry->arena;
			if (arena.tenant != number)
				continue;
			hot += arena.bytes.hot;
			warm += arena.bytes.warm;
			room.cold_used_bytes += arena.bytes.cold;
		}
		room.hot = room_of(hot, quota.hot);
		room.warm = room_of(warm, quota.warm);
		room.cold_limit_bytes = quota.cold;
		if (number < stats.wanted_by_tenant.size()) {
			room.wanted_bytes = stats.wanted_by_tenant[number].bytes;
			room.waking_bytes = stats.wanted_by_tenant[number].waking_bytes;
		}
		input.tenants.push_back(room);
	}
}

void PolicyThread::give(const Order &order)
{
	auto entry = arenas_.find(order.extent.arena);

	if (!entry)
		return;
	switch (order.action) {
	case Action::Demote:
	case Action::Promote:
		return give_to_mover(order, entry->arena);
	case Action::Spill:
		return give_to_faults(order, Request::Kind::Spill, entry->arena);
	case Action::Prefetch:
		return give_to_faults(order, Request::Kind::Prefetch, entry->arena);
	case Action::Drop:
		return give_to_faults(order, Request::Kind::Drop, entry->arena);
	case Action::Forget:
		return give_to_faults(order, Request::Kind::Forget, entry->arena);
	}
}

void PolicyThread::give_to_faults(const Order &order, Request::Kind kind,
				  const std::shared_ptr<Arena> &arena)
{
	if (order.action == Action::Spill)
		spilling_bytes_ += uint64_t{order.extent.nr} * arena->geometry.block_bytes;
	Request request{};
	request.kind = kind;
	request.arena = arena;
	request.extents = {order.extent};
	request.done = [this, order, arena](const Outcome &) { finished(order, arena); };
	faults_.submit(std::move(request));
}

void PolicyThread::give_to_mover(const Order &order, const std::shared_ptr<Arena> &arena)
{
	uint64_t bytes = uint64_t{order.extent.nr} * arena->geometry.block_bytes;

	moving_bytes_ += bytes;
	if (!mover_.submit({arena, order.extent, order.action == Action::Promote,
			    [this, order, arena] { finished(order, arena); }}))
		finished(order, arena);
}

void PolicyThread::finished(const Order &order, const std::shared_ptr<Arena> &arena)
{
	uint64_t bytes = uint64_t{order.extent.nr} * arena->geometry.block_bytes;

	if (order.action == Action::Spill)
		spilling_bytes_ -= bytes;
	if (order.action == Action::Demote || order.action == Action::Promote)
		moving_bytes_ -= bytes;
	recheck(arena, order.extent);
}

} // namespace cxlkv
