/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/arena_state.h"

#include <algorithm>
#include <bit>

namespace cxlkv {

namespace {

constexpr unsigned max_refusals = 3;

bool resident(Where where)
{
	return where == Where::Hot || where == Where::Warm;
}

} // namespace

ArenaState::ArenaState(uint32_t id, const Geometry &geometry, const PolicyOptions &options,
		       StepClock &clock, SessionCounters &counters)
    : table(geometry.nr_blocks()), sessions(geometry.nr_slots), id_(id), geometry_(geometry),
      nr_blocks_(geometry.nr_blocks()), per_slot_(geometry.blocks_per_slot()),
      per_head_(geometry.blocks_per_head()), options_(options),
      adaptive_(options.preset == "adaptive"), ema_(options.alpha), clock_(clock),
      counters_(counters), heads_(geometry.nr_heads()),
      nr_hot_(size_t{geometry.nr_slots} * geometry.nr_heads()),
      learner_(table, nr_blocks_, options.reuse_half_life_steps)
{
}

void ArenaState::set_options(const PolicyOptions &options)
{
	options_ = options;
	adaptive_ = options.preset == "adaptive";
	ema_ = Ema(options.alpha);
	learner_.set_half_life(options.reuse_half_life_steps);
}

ExtentLimits ArenaState::extent_limits() const
{
	return {std::max(1u, options_.max_extent_bytes / geometry_.block_bytes), per_slot_};
}

/* ---- hints ---- */

void ArenaState::hint(const cxl_kv_hint &hint, uint64_t now_ms)
{
	if (hint.slot >= sessions.size())
		return;
	Session &session = sessions[hint.slot];
	bool ranged = hint.head < heads_.size() && hint.block < per_head_ && hint.nr_blocks &&
		      hint.nr_blocks <= per_head_ - hint.block;

	switch (hint.kind) {
	case CXL_KV_HINT_SCORE:
		session.life.use(now_ms);
		if (ranged)
			score(hint);
		break;
	case CXL_KV_HINT_POSITION:
		position(session, hint.slot, hint.position, now_ms);
		break;
	case CXL_KV_HINT_PIN:
		if (ranged)
			pin(hint, now_ms);
		break;
	case CXL_KV_HINT_PHASE:
		session.phase_told = true;
		session.told = hint.position ? Phase::Decode : Phase::Prefill;
		break;
	case CXL_KV_HINT_PARK:
		session.life.park(now_ms);
		session.wake_until_ms = 0;
		session.cursor = 0;
		break;
	case CXL_KV_HINT_WAKE:
		session.life.use(now_ms);
		session.opened = true;
		session.wake_until_ms = now_ms + options_.wake_ms;
		session.fetched_by_request = false;
		session.cursor = 0;
		break;
	default: /* SEAL and DROP are orders to the store, not to the policy */
		break;
	}
}

void ArenaState::score(const cxl_kv_hint &hint)
{
	Session &session = sessions[hint.slot];
	Head &head = heads_[hint.head];
	uint32_t first = geometry_.block_index(hint.slot, hint.head, hint.block);
	float mass = static_cast<float>(hint.score) / CXL_KV_SCORE_ONE;

	session.scored = true;
	head.stats.nr_hints++;
	score(first, hint.nr_blocks, mass, head);
	if (is_access(session, mass))
		access(first, hint.nr_blocks, session);
}

/* In a long context no block has much of it: then what is above the mean of its head counts. */
bool ArenaState::is_access(const Session &session, double mass) const
{
	uint32_t nr = 0;

	for (size_t where = as_index(Where::Hot); where < nr_wheres; where++)
		nr += session.nr[where];
	return mass >= options_.access_mass || mass * nr > geometry_.nr_heads();
}

void ArenaState::score(uint32_t first, uint32_t nr, float score, Head &head)
{
	float wanted = static_cast<float>(options_.promote_score);
	RunScored scored = score_run(table, first, nr, ema_, this_step(), score, wanted);
	add_to_head(head, scored.resident);
	for (uint32_t b = first; !adaptive_ && scored.promotable && b < first + nr; b++)
		if (table.where(b) == Where::Warm && table.ema[b] >= wanted &&
		    to_promote.size() < max_wishes)
			to_promote.push_back({b, 0});
}

/* Neighbours mostly were accessed together: the learner is told of stretches that were. */
void ArenaState::access(uint32_t first, uint32_t nr, Session &session)
{
	uint32_t now = this_step(), nr_alike = 0;
	bool has_cold = session.nr[as_index(Where::Cold)];
	BlockState alike = {};

	for (uint32_t b = first; b < first + nr; b++) {
		BlockState before = table.state[b];
		if (!nr_alike || before.accessed != alike.accessed ||
		    BlockTable::kind_of(before.word) != BlockTable::kind_of(alike.word) ||
		    table.where(b) == Where::Empty || b % ReuseLearner::segment_blocks == 0) {
			if (nr_alike)
				learner_.accessed(b - nr_alike, nr_alike, alike, now);
			alike = before;
			nr_alike = 0;
		}
		if (table.where(b) == Where::Empty)
			continue;
		nr_alike++;
		nr_accesses[as_index(table.where(b))]++;
		if (adaptive_ && table.where(b) == Where::Warm && to_promote.size() < max_wishes)
			to_promote.push_back({b, BlockTable::kind_of(before.word)
							 ? now - before.accessed
							 : never_used});
		table.set_accessed(b, now);
		table.set_kind(b, ReuseLearner::kind_of(table.ema[b]));
		if (has_cold && now - before.accessed > 1)
			wish_neighbours(b);
	}
	if (nr_alike)
		learner_.accessed(first + nr - nr_alike, nr_alike, alike, now);
}

/* Access at P fetches P-W..P+W of its head, and the same block of the layers that compute next. */
void ArenaState::wish_neighbours(uint32_t block)
{
	uint32_t at = block % per_head_;

	wish_around(block - at, at, options_.prefetch_window_tokens);
	uint32_t kv_heads = geometry_.nr_kv_heads;
	uint32_t head = geometry_.head_of(block), slot = geometry_.slot_of(block);
	uint32_t next = (head / kv_heads + 1) * kv_heads;
	uint32_t end = std::min(geometry_.nr_heads(), next + options_.prefetch_layers * kv_heads);
	for (uint32_t h = next; h < end; h++)
		wish_prefetch(geometry_.block_index(slot, h, at), 0);
}

void ArenaState::wish_around(uint32_t head_first, uint32_t at, uint32_t window_tokens)
{
	uint32_t reach = window_tokens / geometry_.tokens_per_block;
	uint32_t last = at + std::min(reach, per_head_ - 1 - at);
	for (uint32_t b = at - std::min(at, reach); b <= last; b++)
		wish_prefetch(head_first + b,
			      double(b > at ? b - at : at - b) * geometry_.tokens_per_block);
}

void ArenaState::prefetch(uint32_t slot, uint32_t position, uint32_t window_tokens)
{
	const uint32_t at = std::min(position / geometry_.tokens_per_block, per_head_ - 1);

	for (uint32_t head = 0; head < geometry_.nr_heads(); head++)
		wish_around(geometry_.block_index(slot, head, 0), at, window_tokens);
}

void ArenaState::wish_prefetch(uint32_t block, double distance_tokens)
{
	if (table.where(block) == Where::Cold && to_prefetch.size() < max_wishes)
		to_prefetch.push_back(
			{id_, block, -static_cast<float>(prefetch_priority(distance_tokens))});
}

void ArenaState::position(Session &session, uint32_t slot, uint32_t position, uint64_t now_ms)
{
	clock_.step(session.seen_step);
	reports_steps_ = true;
	if (position > session.position) {
		session.life.use(now_ms);
		drop_behind(slot, session.position, position);
	}
	if (!session.nr[as_index(Where::Cold)])
		session.wake_until_ms = 0; /* awake: its own accesses protect it now */
	session.position = position;
}

/* Orders away what the windows of the layers have left behind between two positions. */
void ArenaState::drop_behind(uint32_t slot, uint32_t from, uint32_t to)
{
	uint32_t tokens = geometry_.tokens_per_block;
	for (uint32_t layer = 0; layer < geometry_.nr_layers; layer++) {
		uint32_t window = geometry_.layer_window[layer];
		if (!window || to <= window)
			continue;
		/* Position p attends to p - window + 1 .. p: a block is out when its last token is
		 * below. */
		uint32_t begin =
			from > window ? std::min(per_head_, (from - window + 1) / tokens) : 0;
		uint32_t end = std::min(per_head_, (to - window + 1) / tokens);
		if (begin >= end ||
		    to_drop.size() >= max_wishes) /* then it goes when it is a victim */
			continue;
		for (uint32_t h = layer * geometry_.nr_kv_heads;
		     h < (layer + 1) * geometry_.nr_kv_heads; h++)
			to_drop.push_back(
				{id_, geometry_.block_index(slot, h, begin), end - begin});
	}
}

bool ArenaState::outside_window(uint32_t block) const
{
	uint32_t window = geometry_.layer_window[geometry_.head_of(block) / geometry_.nr_kv_heads];
	uint32_t position = sessions[geometry_.slot_of(block)].position;
	return window && position > window &&
	       block % per_head_ < (position - window + 1) / geometry_.tokens_per_block;
}

void ArenaState::pin(const cxl_kv_hint &hint, uint64_t now_ms)
{
	uint32_t first = geometry_.block_index(hint.slot, hint.head, hint.block);
	uint64_t expires = hint.lifetime_ms ? now_ms + hint.lifetime_ms : 0;

	set_priority({first, hint.nr_blocks},
		     std::min<uint8_t>(hint.priority, CXL_KV_MAX_PRIORITY));
	for (TimedPins::Range range : pins_.set(first, hint.nr_blocks, expires))
		set_priority(range, CXL_KV_DEFAULT_PRIORITY);
}

void ArenaState::expire_pins(uint64_t now_ms)
{
	for (TimedPins::Range range : pins_.expired(now_ms))
		set_priority(range, CXL_KV_DEFAULT_PRIORITY);
}

void ArenaState::set_priority(TimedPins::Range range, uint8_t priority)
{
	for (uint32_t b = range.first; b < range.first + range.nr; b++) {
		Where where = table.where(b);
		VictimQueue::Band before = place(b, where).band;
		table.set_priority(b, priority);
		/* A scan lifts blocks into a later band by itself, but does not look for them
		 * there. */
		if (resident(where) && place(b, where).band < before) {
			table.clear_queued(b, where);
			enqueue(b, where);
		}
	}
}

/* ---- samples ---- */

void ArenaState::sample(uint32_t first, uint64_t touched, uint64_t written, uint64_t now_ms)
{
	begin_pass(now_ms);
	for (uint64_t left = touched | written; left; left &= left - 1) {
		unsigned bit = static_cast<unsigned>(std::countr_zero(left));
		uint64_t b = uint64_t{first} + bit;
		if (b >= nr_blocks_)
			return;
		uint32_t block = static_cast<uint32_t>(b);
		Session &session = sessions[geometry_.slot_of(block)];
		Head &head = heads_[geometry_.head_of(block)];
		if (session.sample_ms != now_ms) {
			session.detector.update(session.reads, session.writes, options_.phase_ratio,
						options_.phase_hysteresis);
			session.reads = session.writes = 0;
			session.sample_ms = now_ms;
			session.life.touch(now_ms, resume_ms());
		}
		bool wrote = written >> bit & 1;
		(wrote ? session.writes : session.reads)++;
		(wrote ? head.stats.nr_writes : head.stats.nr_reads)++;
		/* Dense attention touches every block: where the engine reports mass, a touch says
		 * nothing. And a large block is reported in parts. */
		if (session.scored || table.where(block) == Where::Empty || is_used_now(block))
			continue;
		score(block, 1, 1, head);
		access(block, 1, session);
	}
}

void ArenaState::begin_pass(uint64_t now_ms)
{
	const bool was_silent = nr_silent_ > 2;
	nr_silent_ = 0;
	if (now_ms == pass_ms_)
		return;
	pass_gap_ms_ = pass_ms_ && !was_silent ? now_ms - pass_ms_ : 0;
	pass_ms_ = now_ms;
	const uint32_t before = pass_;
	clock_.step(pass_);
	watched_ = (before ? before : pass_) + silent_steps_;
}

/* Touched in two passes in a row is touched twice, however far apart they are. */
uint64_t ArenaState::resume_ms() const
{
	return std::max<uint64_t>(options_.session.resume_ms, pass_gap_ms_);
}

void ArenaState::interval()
{
	/* Nothing of it was ever found by one; the first had one, and the next one may be late. */
	if (!pass_ms_ || ++nr_silent_ <= 2)
		return;
	/* What an engine that reports its own steps does not use while it makes none is no older,
	 * nor is what others do not use because this one is silent. */
	if (!reports_steps_ && pass_ == clock_.now())
		silent_steps_++;
	pass_ = clock_.now();
	watched_ = this_step();
}

Phase ArenaState::phase(uint32_t slot) const
{
	if (slot >= sessions.size())
		return Phase::Unknown;
	const Session &session = sessions[slot];
	if (session.phase_told)
		return session.told;
	PhaseDetector detector = session.detector;
	detector.update(session.reads, session.writes, options_.phase_ratio,
			options_.phase_hysteresis);
	return detector.phase();
}

/* ---- moves ---- */

void ArenaState::moved(uint32_t first, uint32_t nr, Where where, uint64_t now_ms)
{
	uint64_t end = std::min<uint64_t>(uint64_t{first} + nr, nr_blocks_);
	for (uint64_t b = first; b < end; b++)
		move_one(static_cast<uint32_t>(b), where, now_ms);
}

void ArenaState::move_one(uint32_t block, Where where, uint64_t now_ms)
{
	Where old = table.where(block);
	bool ordered = table.ordered(block);

	answered(block);
	if (old == where) {
		if (ordered)
			refused(block, now_ms);
		return;
	}
	Session &session = sessions[geometry_.slot_of(block)];
	Head &head = heads_[geometry_.head_of(block)];
	float ema = current_ema(block);
	if (old != Where::Empty) {
		session.nr[as_index(old)]--;
		head.nr[as_index(old)]--;
	}
	nr_hot_[block / per_head_] += (where == Where::Hot) - (old == Where::Hot);
	if (where != Where::Empty) {
		session.nr[as_index(where)]++;
		head.nr[as_index(where)]++;
	}
	table.set_where(block, where);
	table.set_refusals(block, 0);
	table.set_hold(block, now_ms, residency_ms(ordered && resident(old) && resident(where)));
	add_to_head(head, (resident(where) ? ema : 0.0) - (resident(old) ? ema : 0.0));

	if (old == Where::Empty || old == Where::Lost || where == Where::Empty ||
	    where == Where::Lost) {
		/* A new block, or none: nothing of its past counts. */
		if (resident(where))
			add_to_head(head, -ema);
		table.ema[block] = 0;
		table.set_kind(block, 0);
		table.scored[block] = this_step();
		table.set_accessed(block, this_step());
		if (where == Where::Empty)
			table.set_priority(block, CXL_KV_DEFAULT_PRIORITY);
		if (where == Where::Empty && session.empty())
			session = Session();
		else if (resident(where))
			session.life.use(now_ms);
		/* Made behind the window: the position is that of the slot's last conversation. */
		if (old == Where::Empty && outside_window(block))
			session.position = 0;
	}
	if (resident(where))
		enqueue(block, where);
	/* Somebody needed it and had to wait: what is near is needed next. */
	if (old == Where::Cold && where == Where::Hot && !ordered) {
		session.life.use(now_ms);
		/* A use, and the hint that may follow in this step is no other one. */
		learner_.accessed(block, 1, table.state[block], this_step());
		table.set_accessed(block, this_step());
		if (session.nr[as_index(Where::Cold)])
			wish_neighbours(block);
	}
}

/* Whether a move between hot and warm was right takes a few samples to see. */
uint32_t ArenaState::residency_ms(bool promoted_or_demoted) const
{
	const uint32_t ms = promoted_or_demoted ? std::max(options_.min_residency_ms,
							   options_.move_residency_ms)
						: options_.min_residency_ms;

	return std::min(ms, BlockTable::max_hold_ms);
}

void ArenaState::age_sessions(uint64_t now_ms)
{
	for (Session &session : sessions) {
		const bool was_dropped = session.life.state() == SessionLife::State::Dropped;
		session.life.age(now_ms, options_.session);
		if (!was_dropped && session.life.state() == SessionLife::State::Dropped)
			counters_.nr_dropped++;
	}
}

/* Leased or busy: in use, then. It goes to the end of the queue and is left alone for a while. */
void ArenaState::refused(uint32_t block, uint64_t now_ms)
{
	unsigned nr = table.refusals(block);
	table.set_hold(block, now_ms, options_.refusal_ms << (2 * nr));
	table.set_refusals(block, std::min(nr + 1, max_refusals));
	if (resident(table.where(block)))
		table.set_accessed(block, this_step());
	if (outside_window(block))
		to_drop.push_back({id_, block, 1});
}

void ArenaState::order(uint32_t block, uint64_t now_ms)
{
	order_ms_ = now_ms;
	table.set_ordered(block);
	table.set_hold(block, now_ms, options_.order_timeout_ms);
	nr_ordered_[as_index(table.where(block))]++;
	nr_hot_[block / per_head_] -= table.where(block) == Where::Hot;
}

void ArenaState::answered(uint32_t block)
{
	if (!table.ordered(block))
		return;
	table.clear_ordered(block);
	nr_ordered_[as_index(table.where(block))]--;
	nr_hot_[block / per_head_] += table.where(block) == Where::Hot;
}

void ArenaState::expire_orders(uint64_t now_ms)
{
	uint64_t out = 0;
	for (uint64_t nr : nr_ordered_)
		out += nr;
	if (!out || now_ms - order_ms_ <= options_.order_timeout_ms)
		return;
	for (uint32_t b = 0; b < nr_blocks_; b++)
		answered(b);
}

bool ArenaState::movable(uint32_t block, uint64_t now_ms, bool residency)
{
	if (!table.held(block, now_ms)) {
		answered(block); /* or never was */
		return true;
	}
	return !residency && !table.ordered(block) && !table.refusals(block);
}

/* ---- what the planner asks ---- */

bool ArenaState::being_written(uint32_t block) const
{
	const Session &session = sessions[geometry_.slot_of(block)];
	return session.seen_step &&
	       block % per_head_ == session.position / geometry_.tokens_per_block;
}

bool ArenaState::at_floor(uint32_t block) const
{
	const Session &session = sessions[geometry_.slot_of(block)];
	double mean = double(session.nr[as_index(Where::Hot)]) / geometry_.nr_heads();
	return session.life.active() && nr_hot_[block / per_head_] <= options_.head_floor * mean;
}

void ArenaState::enqueue(uint32_t block, Where tier)
{
	if (table.queued(block, tier))
		return; /* its old entry will be put right by the scan that meets it */
	queue(tier).push(place(block, tier), block, this_step());
	table.set_queued(block, tier);
}

void ArenaState::tidy_queue(Where tier)
{
	struct Everything {
		void visit(uint32_t) {}
		void visit_soon(uint32_t) {}
		bool more() { return true; }
		bool enough() { return false; }
	} everything;
	uint64_t here = 0;
	for (const Session &session : sessions)
		here += session.nr[as_index(tier)];
	if (queue(tier).nr_entries() <= here + here / 16 + max_wishes)
		return;
	for (auto band : {VictimQueue::Low, VictimQueue::Normal, VictimQueue::Kept})
		scan(tier, band, everything);
}

double ArenaState::rank(uint8_t kind, uint32_t step) const
{
	return adaptive_ ? learner_.worth(kind, this_step() - step) : step;
}

double ArenaState::priority(uint32_t block) const
{
	if (adaptive_)
		return -learner_.worth(table.kind(block), unused_for(block));
	return eviction_priority(current_ema(block),
				 recency_decay(unused_for(block), options_.decay_steps));
}

double ArenaState::score(uint32_t block) const
{
	return block < nr_blocks_ ? current_ema(block) : 0;
}

double ArenaState::promise(uint32_t block) const
{
	return knows(block) ? learner_.worth(table.kind(block), age(block)) : current_ema(block);
}

/* All blocks of a head decay alike, so their sum does too. */
void ArenaState::add_to_head(Head &head, double ema)
{
	head.stats.ema_sum =
		std::max(0.0, head.stats.ema_sum * ema_.decay(this_step() - head.ema_step) + ema);
	head.ema_step = this_step();
}

std::vector<HeadStats> ArenaState::heads() const
{
	std::vector<HeadStats> all;
	all.reserve(heads_.size());
	for (const Head &head : heads_) {
		HeadStats stats = head.stats;
		stats.ema_sum *= ema_.decay(this_step() - head.ema_step);
		stats.nr_hot = head.nr[as_index(Where::Hot)];
		stats.nr_warm = head.nr[as_index(Where::Warm)];
		stats.nr_cold = head.nr[as_index(Where::Cold)];
		all.push_back(stats);
	}
	return all;
}

} // namespace cxlkv
