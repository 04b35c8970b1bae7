/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A model of docs/spill-protocol.md, explored whole: one block, a thread that
 * writes it, one that leases and pins it for DMA, one that leases it, drops and
 * forgets of it, leases that expire, the daemon's steps one by one, the kernel's
 * rules for faults, and kill -9 of the daemon between any two steps.
 *
 * In every reachable state wrong_with() finds nothing. And what a thread waits
 * for comes: of the steps that daemon and library must take sooner or later,
 * none go round in a circle, and where there are none, nobody waits.
 *
 * The names of the daemon's steps are those of the document. What the model
 * leaves out: several blocks, partly filled ones, device errors.
 */
#pragma once

#include "unit/spill_model_state.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cxlkv::model {

class Model {
public:
	explicit Model(Without without, unsigned max_kills = 1)
	    : without_(without), max_kills_(max_kills)
	{
	}

	/* "" or what was found wrong, with the steps that lead there. */
	std::string explore()
	{
		add(State{}, 0, "begin");
		for (size_t i = 0; i < states_.size(); i++) {
			now_ = states_[i];
			now_index_ = static_cast<uint32_t>(i);
			nr_due_ = 0;
			if (std::string wrong = wrong_with(now_); !wrong.empty())
				return wrong + trace();
			writer();
			leaser(&State::pins);
			leaser(&State::uses);
			pinner();
			if (!now_.drop_asked)
				may("ask for a drop", [](State &s) { s.drop_asked = true; });
			daemon();
			if (now_.waits() && !nr_due_)
				return "a thread waits for ever" + trace();
		}
		return has_circle() ? "a thread waits for ever: due steps go round in a circle"
				    : "";
	}
	[[nodiscard]] size_t nr_states() const { return states_.size(); }

private:
	using Is = Lease::Is;

	uint32_t add(const State &state, uint32_t from, const char *action)
	{
		auto [at, is_new] = index_.emplace(state, states_.size());

		if (is_new) {
			states_.push_back(state);
			from_.emplace_back(from, action);
		}
		return at->second;
	}

	[[nodiscard]] std::string trace() const
	{
		std::vector<const char *> actions;
		for (uint32_t at = now_index_; at; at = from_[at].first)
			actions.push_back(from_[at].second);
		std::string out = ":";
		for (size_t i = actions.size(); i-- > 0;)
			out += std::string(" ") + actions[i] + ";";
		return out;
	}

	[[nodiscard]] bool has_circle() const
	{
		std::vector<std::vector<uint32_t>> next(states_.size());
		std::vector<uint32_t> nr_before(states_.size()), ready;

		for (auto [from, to] : due_) {
			next[from].push_back(to);
			nr_before[to]++;
		}
		for (uint32_t i = 0; i < states_.size(); i++)
			if (!nr_before[i])
				ready.push_back(i);
		for (size_t i = 0; i < ready.size(); i++)
			for (uint32_t to : next[ready[i]])
				if (!--nr_before[to])
					ready.push_back(to);
		return ready.size() < states_.size();
	}

	/* What may happen. */
	template <typename Change> void may(const char *action, Change change)
	{
		State next = now_;
		change(next);
		add(next, now_index_, action);
	}
	/* What will happen, unless something else comes before it. */
	template <typename Change> void will(const char *action, Change change)
	{
		State next = now_;
		change(next);
		due_.emplace_back(now_index_, add(next, now_index_, action));
		nr_due_++;
	}

	/* ---- the kernel's rules ---- */

	static void wake(State &s) { s.writer = s.pinner = Thread::Runs; }
	static void unprotect(State &s)
	{
		s.protect = false;
		wake(s);
	}
	/* A store to the block through the page table: true where it can land. */
	static bool may_store(State &s, Thread &thread)
	{
		if (s.page == kNothing) {
			thread = Thread::WaitsMissing;
			s.event_missing = true;
		} else if (s.protect) {
			thread = Thread::WaitsProtected;
			s.event_protected = true;
		} else {
			return true;
		}
		return false;
	}

	/* ---- the client ---- */

	void writer()
	{
		if (now_.writer == Thread::Runs && now_.nr_written < kLastValue)
			may("write", [](State &s) {
				if (may_store(s, s.writer))
					s.page = s.truth = ++s.nr_written;
			});
	}

	/* Which of the leases this was, the word does not say: one that is over, where there is
	 * one. */
	void unlease(State &s, Lease State::*lease) const
	{
		const bool from_leases = without_ == Without::ExpiredFirst ? s.leases : !s.expired;
		uint8_t &count = from_leases ? s.leases : s.expired;

		s.*lease = Lease();
		if (count)
			count--;
	}

	void leaser(Lease State::*lease)
	{
		switch ((now_.*lease).is) {
		case Is::None:
			if (now_.block == Block::Empty || now_.block == Block::Lost)
				break; /* ENODATA, EIO */
			may("lease", [&](State &s) {
				s.*lease = {s.here() ? Is::Held : Is::Leased, true, false};
				s.leases++;
				if (without_ != Without::AgeReset)
					s.age = 0;
			});
			break;
		case Is::Leased:
			if (without_ != Without::AskAgain || !now_.kills)
				will("ask", [&](State &s) { (s.*lease).is = Is::Asked; });
			break;
		case Is::Asked: /* sees the answer in the word */
			if (now_.here())
				will("fetched", [&](State &s) { (s.*lease).is = Is::Held; });
			else if (now_.block == Block::Empty || now_.block == Block::Lost)
				will("refused", [&](State &s) { unlease(s, lease); });
			break;
		case Is::Held:
			if (lease == &State::uses || now_.pinner == Thread::Runs)
				may("unlease", [&](State &s) { unlease(s, lease); });
			break;
		case Is::Pinned:
			break;
		}
		if ((now_.*lease).waits())
			may("time-out", [&](State &s) { unlease(s, lease); });
	}

	void pinner()
	{
		if (now_.pins.is == Is::Held && !now_.pins.over && now_.pinner == Thread::Runs)
			may("pin",
			    [](State &s) { /* get_user_pages for writing faults like a store */
					   if (may_store(s, s.pinner)) {
						   s.pins.is = Is::Pinned;
						   s.pin_is_this_page = true;
					   }
			    });
		if (now_.pins.is != Is::Pinned && !now_.pin_is_this_page)
			return;
		if (now_.nr_written < kLastValue)
			may("DMA", [](State &s) {
				s.truth = ++s.nr_written;
				if (s.page != kNothing) /* else it goes to a page nobody sees */
					s.page = s.truth;
			});
		may("unpin", [](State &s) {
			s.pin_is_this_page = false;
			if (s.pins.is == Is::Pinned)
				s.pins.is = Is::Held;
		});
		if (without_ == Without::LeaseDuringPin && now_.pins.is == Is::Pinned)
			may("unlease, still pinned", [&](State &s) { unlease(s, &State::pins); });
	}

	/* ---- the daemon ---- */

	void daemon()
	{
		if (now_.step == Step::Dead) {
			will("new daemon", [this](State &s) {
				if (without_ != Without::RecoveryUnprotect)
					s.protect = false; /* wakes nobody: DONTWAKE */
				s.step = Step::Unprotected;
			});
			return;
		}
		if (now_.kills < max_kills_)
			may("kill -9", [](State &s) {
				s.kills++;
				s.step = Step::Dead;
				s.bounce = kNothing;
				s.hand_protected = s.hand_missing = s.voided = false;
				for (Lease *lease : {&s.pins, &s.uses})
					if (lease->is == Is::Asked)
						lease->is = Is::Leased;
			});
		if (now_.voided)
			will("write down that it is void", [](State &s) {
				s.record = kNothing;
				s.voided = false;
			});
		tick();
		switch (now_.step) {
		case Step::Idle:
			idle();
			break;
		case Step::Reading:
		case Step::Filled:
			restore();
			break;
		case Step::Emptied:
		case Step::Voided:
		case Step::Gone:
			drop();
			break;
		case Step::Unprotected:
		case Step::Scanned:
			recover();
			break;
		case Step::Claimed:
		case Step::Protected:
		case Step::Checked:
			protect_and_copy();
			break;
		case Step::Copied:
		case Step::Written:
			take_event();
			give_up_for_drop();
			write_and_drain();
			break;
		default:
			punch();
		}
	}

	/* A lease lives for one whole tick at least. A pin is over before its lease is: that is the
	 * limit's contract. */
	void tick()
	{
		const bool pinned = now_.pins.is == Is::Pinned || now_.pin_is_this_page;

		if (!now_.leases)
			return;
		if (!now_.age)
			may("tick", [](State &s) {
				s.age = 1;
				s.pins.young = s.uses.young = false;
			});
		else if (!pinned || without_ == Without::LongLimit)
			may("expire", [](State &s) {
				s.expired += std::exchange(s.leases, 0);
				s.age = 0;
				for (Lease *lease : {&s.pins, &s.uses})
					lease->over |= lease->is != Is::None && !lease->young;
			});
	}

	/* Between steps of a spill events are read too; what they do depends on the block. */
	void take_event()
	{
		if (now_.event_protected || now_.event_missing)
			will("read events", [](State &s) {
				s.hand_protected |= s.event_protected;
				s.hand_missing |= s.event_missing;
				s.event_protected = s.event_missing = false;
			});
		if (now_.hand_protected || now_.hand_missing)
			will("answer events", [this](State &s) { answer(s); });
	}

	void answer(State &s) const
	{
		if (s.hand_protected) {
			unprotect(s);
			if (s.block == Block::Clean && without_ != Without::WriteToClean)
				s.block = Block::Resident;
			if (s.block == Block::Spilling)
				s.block = Block::Aborted;
		} else if (s.block == Block::Cold) {
			s.block = Block::Restoring;
			s.step = Step::Reading;
		} else if (s.block == Block::Empty) {
			s.page = kZeros;
			s.block = Block::Resident;
			wake(s);
		} else if (s.block != Block::Restoring) {
			wake(s);
		}
		s.hand_protected = s.hand_missing = false;
	}

	void idle()
	{
		take_event();
		const bool clean = now_.block == Block::Clean;
		const auto restore = [](State &s) {
			s.block = Block::Restoring;
			s.step = Step::Reading;
		};

		if ((clean || now_.block == Block::Resident) && !now_.leases)
			may("claim", [clean](State &s) {
				s.block = Block::Spilling;
				s.was_clean = clean;
				s.step = Step::Claimed;
			});
		if (now_.block == Block::Cold) {
			if ((now_.pins.is == Is::Asked || now_.uses.is == Is::Asked) &&
			    without_ != Without::Fetch)
				will("fetch", restore);
			may("prefetch", restore);
		}
		if (now_.drop_asked)
			will("drop", [this](State &s) { answer_drop(s); });
		if ((now_.here() || now_.block == Block::Cold) && !now_.leases)
			may("forget", [](State &s) { begin_drop(s, Block::Lost); });
	}

	/* ---- drop, and forget ---- */

	/* What there is no page of is gone as soon as the word says so. */
	static void begin_drop(State &s, Block to)
	{
		if (s.page == kNothing)
			s.truth = to == Block::Lost ? kForgotten : kZeros;
		s.block = to;
		s.step = Step::Emptied;
	}

	void answer_drop(State &s) const
	{
		const bool busy = s.leases && without_ != Without::LeaseCheckOfDrop;

		if (s.block == Block::Empty || busy)
			s.drop_asked = false;
		else
			begin_drop(s, without_ == Without::WordFirst ? s.block : Block::Empty);
	}

	void give_up_for_drop()
	{
		if (now_.drop_asked && now_.block == Block::Spilling && !now_.leases)
			will("give up for a drop", [](State &s) {
				unprotect(s);
				s.block = Block::Aborted;
			});
	}

	void drop()
	{
		switch (now_.step) {
		case Step::Emptied:
			will("void the record", [](State &s) {
				s.voided = s.record != kNothing;
				s.step = Step::Voided;
			});
			break;
		case Step::Voided:
			will("punch what is dropped", [](State &s) {
				s.page = kNothing;
				s.truth = s.block == Block::Lost ? kForgotten : kZeros;
				s.step = Step::Gone;
			});
			break;
		default:
			will("dropped", [](State &s) {
				if (s.block != Block::Lost) {
					s.block = Block::Empty;
					s.drop_asked = false;
				}
				unprotect(s);
				s.step = Step::Idle;
			});
		}
	}

	/* ---- restore, and a new daemon ---- */

	void restore()
	{
		if (now_.step == Step::Reading)
			will("fill", [](State &s) {
				if (s.page == kNothing) {
					s.page = s.record;
					s.protect = true;
				}
				s.step = Step::Filled;
			});
		else
			will("resident", [](State &s) {
				s.block = Block::Clean;
				wake(s);
				s.step = Step::Idle;
			});
	}

	void recover()
	{
		if (now_.step == Step::Unprotected)
			will("scan", [this](State &s) {
				scan(s);
				s.step = Step::Scanned;
			});
		else
			will("wake", [this](State &s) {
				if (without_ != Without::RecoveryWake)
					wake(s);
				s.step = Step::Idle;
			});
	}

	void scan(State &s) const
	{
		const bool here = s.page != kNothing;
		const bool was_empty = s.block == Block::Empty && without_ != Without::EmptyWord;
		const bool was_lost = s.block == Block::Lost && without_ != Without::LostWord;

		s.voided = (was_empty || was_lost) && s.record != kNothing;
		if (without_ == Without::PageWins && s.record != kNothing)
			s.page = s.record;
		s.block = here                                ? Block::Resident
			  : was_empty                         ? Block::Empty
			  : s.record != kNothing && !s.voided ? Block::Cold
							      : Block::Lost;
	}

	/* ---- spill ---- */

	void abort(State &s) const
	{
		if (without_ != Without::AbortUnprotect)
			unprotect(s);
		s.block = Block::Resident;
		s.bounce = kNothing;
		s.step = Step::Idle;
	}

	/* Steps 1 to 3a. */
	void protect_and_copy()
	{
		const bool copy_first = without_ == Without::ProtectBeforeCopy;
		const auto protect = [](State &s) {
			s.protect = true;
			s.step = s.step == Step::Claimed ? Step::Protected : Step::Copied;
		};
		const auto copy = [](State &s) {
			s.bounce = s.page;
			s.step = s.step == Step::Claimed ? Step::Checked : Step::Copied;
		};

		switch (now_.step) {
		case Step::Claimed:
			copy_first ? will("copy", copy) : will("protect", protect);
			break;
		case Step::Protected:
			if (now_.leases && without_ != Without::LeaseCheckAtProtect)
				will("abort", [this](State &s) { abort(s); });
			else
				will("no lease", [](State &s) { s.step = Step::Checked; });
			break;
		default:
			copy_first ? will("protect", protect) : will("copy", copy);
		}
	}

	/* Steps 3b and 4. */
	void write_and_drain()
	{
		if (now_.step == Step::Copied)
			will("write the record", [this](State &s) {
				if (!s.was_clean && without_ != Without::Commit) {
					s.record = s.bounce;
					s.voided = false;
				}
				s.step = Step::Written;
			});
		else
			will("drain", [this](State &s) {
				if (without_ != Without::Drain) {
					s.hand_protected |= s.event_protected;
					s.hand_missing |= s.event_missing;
					s.event_protected = s.event_missing = false;
					if (s.hand_protected || s.hand_missing)
						answer(s);
				}
				s.step = Step::Drained;
			});
	}

	/* Steps 5 to 9. */
	void punch()
	{
		const bool leased = now_.leases && without_ != Without::LeaseCheck;

		switch (now_.step) {
		case Step::Drained:
			if (now_.block == Block::Aborted || leased)
				will("abort", [this](State &s) { abort(s); });
			else
				will("punching", [this](State &s) {
					if (without_ == Without::ProtectUntilPunched)
						unprotect(s);
					s.block = Block::Punching;
					s.step = Step::Punching;
				});
			break;
		case Step::Punching:
			will("punch", [](State &s) {
				s.page = kNothing;
				s.step = Step::Punched;
			});
			break;
		case Step::Punched:
			will("record", [](State &s) {
				if (!s.was_clean) {
					s.record = s.bounce;
					s.voided = false;
				}
				s.block = Block::Cold;
				s.bounce = kNothing;
				s.step = Step::Recorded;
			});
			break;
		default:
			will("unprotect", [this](State &s) {
				if (without_ != Without::FinalUnprotect)
					unprotect(s);
				s.step = Step::Idle;
			});
		}
	}

	const Without without_;
	const unsigned max_kills_;
	State now_;
	uint32_t now_index_ = 0, nr_due_ = 0;
	std::vector<State> states_;
	std::vector<std::pair<uint32_t, const char *>> from_; /* of each: the one before it */
	std::unordered_map<State, uint32_t, Hash> index_;
	std::vector<std::pair<uint32_t, uint32_t>> due_;
};

} // namespace cxlkv::model
