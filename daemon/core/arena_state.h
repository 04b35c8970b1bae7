/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the policy knows of one arena: its blocks, sessions and heads, kept up
 * to date by hints, samples and moves. Says what could be done; planner.h decides.
 */
#pragma once

#include "core/block_table.h"
#include "core/extents.h"
#include "core/phase.h"
#include "core/pins.h"
#include "core/policy.h"
#include "core/reuse_learner.h"
#include "core/score.h"
#include "core/score_run.h"
#include "core/step_clock.h"
#include "core/victim_queue.h"

#include <vector>

namespace cxlkv {

constexpr size_t nr_wheres = 5;

struct Session {
	SessionLife life;
	bool opened = false;     /* a conversation, not blocks that something else made */
	bool scored = false;     /* the engine reports attention mass: samples do not score */
	bool phase_told = false; /* the engine reports the phase: samples do not decide it */
	Phase told = Phase::Unknown;
	uint32_t seen_step = 0;
	uint32_t position = 0;
	uint32_t cursor = 0;        /* block of the slot where the last partial scan ended */
	uint64_t wake_until_ms = 0; /* until then it is being woken: fetched, and not evicted */
	bool fetched_by_request = false; /* what is cold of it, and not by the plan */
	uint64_t sample_ms = 0;
	uint64_t reads = 0, writes = 0; /* of the interval that began at sample_ms */
	PhaseDetector detector;
	uint32_t nr[nr_wheres] = {}; /* blocks by Where; Empty is not counted */

	[[nodiscard]] bool empty() const { return !(nr[1] | nr[2] | nr[3] | nr[4]); }
	[[nodiscard]] bool in_use() const { return opened && life.active(); }
	[[nodiscard]] bool waking(uint64_t now_ms) const { return wake_until_ms > now_ms; }
};

/* Of all arenas. */
struct SessionCounters {
	uint64_t nr_dropped = 0;
	uint64_t nr_active_evicted_blocks = 0;
};

/* Used in warm. */
struct Promotable {
	uint32_t block;
	uint32_t gap; /* steps between its last two uses, or never_used before */
};
constexpr uint32_t never_used = UINT32_MAX;

class ArenaState {
public:
	std::array<uint64_t, 5> nr_accesses{}; /* by Where */

	ArenaState(uint32_t id, const Geometry &geometry, const PolicyOptions &options,
		   StepClock &clock, SessionCounters &counters);

	void set_options(const PolicyOptions &options);

	void hint(const cxl_kv_hint &hint, uint64_t now_ms);
	void prefetch(uint32_t slot, uint32_t position, uint32_t window_tokens);
	void sample(uint32_t first, uint64_t touched, uint64_t written, uint64_t now_ms);
	/* The time of a pass is over. */
	void interval();
	void moved(uint32_t first, uint32_t nr, Where where, uint64_t now_ms);
	/* Sessions that nothing is heard of sink by a stage. */
	void age_sessions(uint64_t now_ms);
	void expire_pins(uint64_t now_ms);
	void expire_orders(uint64_t now_ms);

	/* An order for the block goes out; moved() is its answer. */
	void order(uint32_t block, uint64_t now_ms);
	/* Nothing is out for it, no refusal is fresh, and, where asked, it has been here long
	 * enough. */
	bool movable(uint32_t block, uint64_t now_ms, bool residency);

	/* The block of the session's position: every step needs it. */
	[[nodiscard]] bool being_written(uint32_t block) const;
	/* Its head holds no more hot blocks than the floor; orders that are out count as done. */
	[[nodiscard]] bool at_floor(uint32_t block) const;
	[[nodiscard]] VictimQueue::Place place(uint32_t block, Where tier) const
	{
		BlockState state = table.state[block];
		VictimQueue::Band band = VictimQueue::Normal;
		uint8_t priority = table.priority(block);
		if (priority < CXL_KV_DEFAULT_PRIORITY)
			band = VictimQueue::Low;
		else if (priority > CXL_KV_DEFAULT_PRIORITY ||
			 block % per_head_ < options_.anchor_blocks)
			band = VictimQueue::Kept;
		return {BlockTable::where_of(state.word) == tier, band,
			adaptive_ ? BlockTable::kind_of(state.word) : uint8_t{0}, state.accessed};
	}
	/*
	 * The highest leaves first: the paper's priority as of now, or the negated
	 * worth that the reuse model gives the block.
	 */
	[[nodiscard]] double priority(uint32_t block) const;
	/* The lowest is scanned first: a bucket of blocks of a kind, accessed at a step. */
	[[nodiscard]] double rank(uint8_t kind, uint32_t step) const;
	/* Time to learn; once a plan. */
	void learn() { learner_.run(this_step()); }
	[[nodiscard]] double score(uint32_t block) const;
	/* Uses a step that it may still have: what was learned of its like, until then its score.
	 */
	[[nodiscard]] double promise(uint32_t block) const;
	/* Steps since its last use. */
	[[nodiscard]] uint32_t unused_for(uint32_t block) const
	{
		return this_step() - table.accessed(block);
	}
	/* The same, but of a session that is only sampled, as of the last pass that is
	 * over: what was touched in it is as young as can be, whatever others did since. */
	[[nodiscard]] uint32_t age(uint32_t block) const
	{
		const bool sampled = watched_ && !sessions[geometry_.slot_of(block)].scored;
		const uint32_t now = sampled ? watched_ : this_step(), used = table.accessed(block);
		return now > used ? now - used : 0;
	}
	/* Its promise is learned. */
	[[nodiscard]] bool knows(uint32_t block) const
	{
		return adaptive_ && learner_.knows(age(block));
	}
	/* It was sampled more than once within a few steps. */
	[[nodiscard]] bool used_again(uint32_t block) const
	{
		constexpr uint32_t few = 4; /* less than so many */
		return current_ema(block) >= ema_.alpha() * (1 + 1.01f * ema_.decay(few));
	}
	void score_soon(uint32_t block) const
	{
		__builtin_prefetch(&table.scored[block]);
		__builtin_prefetch(&table.ema[block]);
	}
	[[nodiscard]] Phase phase(uint32_t slot) const;
	[[nodiscard]] std::vector<HeadStats> heads() const;
	[[nodiscard]] bool outside_window(uint32_t block) const;

	/* Rids the queue of blocks that left when they are more than a share of it. */
	void tidy_queue(Where tier);
	/* The blocks that should leave a tier first, as VictimQueue::scan() has it; asked: visit(),
	 * visit_soon(), more() and enough(). */
	template <typename Asked> void scan(Where tier, VictimQueue::Band band, Asked &asked);

	[[nodiscard]] uint32_t id() const { return id_; }
	[[nodiscard]] uint32_t nr_blocks() const { return nr_blocks_; }
	[[nodiscard]] const Geometry &geometry() const { return geometry_; }
	[[nodiscard]] ExtentLimits extent_limits() const;
	/* Bytes with an order out, by where the blocks are now. */
	[[nodiscard]] uint64_t ordered_bytes(Where where) const
	{
		return nr_ordered_[as_index(where)] * geometry_.block_bytes;
	}

	/* Room that each of its active sessions keeps for its next blocks. */
	[[nodiscard]] uint64_t reserve_bytes() const
	{
		return uint64_t{options_.session.reserve_blocks} * geometry_.nr_heads() *
		       geometry_.block_bytes;
	}

	uint32_t tenant = 0;
	bool warm_allowed = true;
	BlockTable table;
	std::vector<Session> sessions;

	/* Taken and cleared by each plan; bounded, since a client fills them. */
	std::vector<Pick> to_prefetch;
	std::vector<Promotable> to_promote;
	/* Ranges that left the attention window and were not dropped yet. */
	std::vector<Extent> to_drop;

	static constexpr size_t max_wishes = 1 << 16;

private:
	struct Head {
		HeadStats stats;
		uint32_t ema_step = 0; /* of stats.ema_sum */
		uint32_t nr[nr_wheres] = {};
	};

	/* The step: that of the clock, and those that passed in its silence alone. */
	[[nodiscard]] uint32_t this_step() const { return clock_.now() + silent_steps_; }
	void score(const cxl_kv_hint &hint);
	[[nodiscard]] bool is_access(const Session &session, double mass) const;
	/* Its use in this step is known. */
	[[nodiscard]] bool is_used_now(uint32_t block) const
	{
		return table.kind(block) && table.accessed(block) == this_step() &&
		       table.scored[block] == this_step();
	}
	void score(uint32_t first, uint32_t nr, float score, Head &head);
	void access(uint32_t first, uint32_t nr, Session &session);
	void begin_pass(uint64_t now_ms);
	[[nodiscard]] uint64_t resume_ms() const;
	void pin(const cxl_kv_hint &hint, uint64_t now_ms);
	void set_priority(TimedPins::Range range, uint8_t priority);
	void position(Session &session, uint32_t slot, uint32_t position, uint64_t now_ms);
	void drop_behind(uint32_t slot, uint32_t from, uint32_t to);
	void wish_around(uint32_t head_first, uint32_t at, uint32_t window_tokens);
	void wish_neighbours(uint32_t block);
	void wish_prefetch(uint32_t block, double distance_tokens);
	void move_one(uint32_t block, Where where, uint64_t now_ms);
	[[nodiscard]] uint32_t residency_ms(bool promoted_or_demoted) const;
	void refused(uint32_t block, uint64_t now_ms);
	void answered(uint32_t block);
	void enqueue(uint32_t block, Where tier);
	float current_ema(uint32_t block) const
	{
		return table.ema[block] * ema_.decay(this_step() - table.scored[block]);
	}
	void add_to_head(Head &head, double ema);
	VictimQueue &queue(Where tier) { return tier == Where::Hot ? hot_queue_ : warm_queue_; }

	uint32_t id_;
	Geometry geometry_;
	uint32_t nr_blocks_, per_slot_, per_head_;
	PolicyOptions options_;
	bool adaptive_;
	Ema ema_;
	StepClock &clock_;
	SessionCounters &counters_;
	ChunkPool chunks_; /* of both queues */
	VictimQueue hot_queue_{chunks_}, warm_queue_{chunks_};
	std::vector<Head> heads_;
	std::vector<uint32_t> nr_hot_; /* by slot and head, without those that are ordered away */
	TimedPins pins_;
	ReuseLearner learner_;
	uint64_t nr_ordered_[nr_wheres] = {};
	uint64_t order_ms_ = 0;      /* of the last order */
	uint64_t pass_ms_ = 0;       /* when the pass that is reported began, */
	uint64_t pass_gap_ms_ = 0;   /* after the one before it; 0: there was silence */
	uint32_t pass_ = 0;          /* its step on the clock, */
	uint32_t watched_ = 0;       /* and this_step() in the one before; 0: there was none */
	uint32_t silent_steps_ = 0;  /* in which it aged alone */
	unsigned nr_silent_ = 0;     /* intervals since its last report */
	bool reports_steps_ = false; /* its engine reported one, ever */
};

template <typename Asked> void ArenaState::scan(Where tier, VictimQueue::Band band, Asked &asked)
{
	struct Answers {
		ArenaState &arena;
		Where tier;
		Asked &asked;

		void place_soon(uint32_t block) const
		{
			__builtin_prefetch(&arena.table.state[block], 1);
		}
		void visit_soon(uint32_t block) const { asked.visit_soon(block); }
		VictimQueue::Place place(uint32_t block) const { return arena.place(block, tier); }
		void gone(uint32_t block) const { arena.table.clear_queued(block, tier); }
		double rank(uint8_t kind, uint32_t step) const { return arena.rank(kind, step); }
		void visit(uint32_t block) const { asked.visit(block); }
		bool more() const { return asked.more(); }
		bool enough() const { return asked.enough(); }
	} answers{*this, tier, asked};
	queue(tier).scan(band, this_step(), answers);
}

} // namespace cxlkv
