/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A model of docs/spill-protocol.md, explored whole: one block, a thread that
 * writes it, a thread that leases and pins it for DMA, the daemon's steps one by
 * one, the kernel's rules for faults, and kill -9 of the daemon between any two
 * steps. In every reachable state a byte that can be read is the last one
 * written, and no thread waits for an answer that nobody will give. Each
 * safeguard of the protocol is taken out once, and the model has to notice.
 *
 * The names of the daemon's steps are those of the document. What the model
 * leaves out: several blocks, partly filled ones, device errors.
 */
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <queue>
#include <unordered_map>

namespace {

/* What is left out of the protocol. */
enum class Without {
	Nothing,
	ProtectUntilPunched, /* un-protect first, then punch */
	ProtectBeforeCopy,
	LeaseCheck, /* step 5 does not look at leases */
	LeaseCheckAtProtect,
	Drain,             /* step 4: only saves work */
	WriteToClean,      /* a write to a clean block leaves it clean */
	PageWins,          /* a new daemon prefers the record to the page */
	RecoveryUnprotect, /* saves faults */
	RecoveryWake,
	LeaseDuringPin, /* the client gives the lease back while it still pins */
	Commit,         /* the hole is made before the record is complete */
};

enum class Step : uint8_t {
	Idle,
	Claimed,   /* 1: the word is SPILLING */
	Protected, /* 2 */
	Checked,   /* no lease from before the protection */
	Copied,    /* 3a */
	Written,   /* 3b */
	Drained,   /* 4 */
	Punching,  /* 5: the word says so */
	Punched,   /* 6, 7 */
	Recorded,  /* 8: COLD */
	Reading,   /* a restore: the record is read */
	Filled,    /* UFFDIO_COPY without waking */
	Dead,
	Unprotected, /* a new daemon, 1 */
	Scanned,     /* 2, 3 */
};
enum class Block : uint8_t { Resident, Clean, Spilling, Aborted, Punching, Cold, Restoring, Lost };
enum class Thread : uint8_t { Runs, WaitsProtected, WaitsMissing };
enum class Lease : uint8_t { None, Wanted, Held, Pinned };

constexpr int8_t kNothing = -1;
constexpr int8_t kLastValue = 3; /* the block is written three times; then clients only read */

struct State {
	/* kernel */
	int8_t page = 0; /* its value, or kNothing: a hole */
	bool protect = false;
	bool event_protected = false, event_missing = false; /* in the queue */
	bool hand_protected = false, hand_missing = false;   /* read by the daemon, not answered */
	/* client */
	int8_t truth = 0; /* the last value that a write ended with */
	Thread writer = Thread::Runs, pinner = Thread::Runs;
	Lease lease = Lease::None;
	bool pin_is_this_page = false;
	/* daemon */
	Step step = Step::Idle;
	Block block = Block::Resident;
	bool was_clean = false; /* the spill writes nothing */
	int8_t bounce = kNothing;
	uint8_t kills = 0;
	/* store */
	int8_t record = kNothing; /* the newest complete one */

	[[nodiscard]] bool leased() const { return lease != Lease::None; }
	bool operator==(const State &other) const { return !memcmp(this, &other, sizeof(State)); }
};
static_assert(sizeof(State) == 17, "no padding, or comparing bytes is wrong");

struct Hash {
	size_t operator()(const State &s) const
	{
		size_t hash = 1469598103934665603ull;
		for (auto byte : std::array<uint8_t, sizeof(State)>(
			     std::bit_cast<std::array<uint8_t, sizeof(State)>>(s)))
			hash = (hash ^ byte) * 1099511628211ull;
		return hash;
	}
};

class Model {
public:
	explicit Model(Without without) : without_(without) {}

	/* "" or what was found wrong, with the steps that lead there. */
	std::string explore()
	{
		seen_.emplace(State{}, From{State{}, "begin"});
		queue_.push(State{});
		while (!queue_.empty()) {
			now_ = queue_.front();
			queue_.pop();
			if (std::string wrong = check(now_); !wrong.empty())
				return wrong + trace(now_);
			client();
			daemon();
		}
		return "";
	}
	[[nodiscard]] size_t nr_states() const { return seen_.size(); }

private:
	struct From {
		State state;
		const char *action;
	};

	static std::string check(const State &s)
	{
		if (s.page != kNothing && s.page != s.truth)
			return "a read gives an old value";
		if (s.block == Block::Lost)
			return "a block is lost";
		if (s.page == kNothing && (s.lease == Lease::Held || s.lease == Lease::Pinned))
			return "a leased block left memory";
		bool waits = s.writer != Thread::Runs || s.pinner != Thread::Runs;
		bool comes =
			s.event_protected || s.event_missing || s.hand_protected || s.hand_missing;
		if (s.step == Step::Idle && waits && !comes)
			return "a thread waits for ever";
		return "";
	}

	std::string trace(const State &end) const
	{
		std::vector<const char *> actions;
		for (State at = end; !(at == State{}); at = seen_.at(at).state)
			actions.push_back(seen_.at(at).action);
		std::string out = ":";
		for (size_t i = actions.size(); i-- > 0;)
			out += std::string(" ") + actions[i] + ";";
		return out;
	}

	void go(const char *action, const std::function<void(State &)> &change)
	{
		State next = now_;
		change(next);
		if (seen_.emplace(next, From{now_, action}).second)
			queue_.push(next);
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

	void client()
	{
		if (now_.writer == Thread::Runs && now_.truth < kLastValue)
			go("write", [](State &s) {
				if (may_store(s, s.writer))
					s.page = ++s.truth;
			});
		switch (now_.lease) {
		case Lease::None:
			go("lease", [](State &s) {
				bool here = s.block == Block::Resident || s.block == Block::Clean ||
					    s.block == Block::Spilling || s.block == Block::Aborted;
				s.lease = here ? Lease::Held : Lease::Wanted;
			});
			break;
		case Lease::Wanted: /* asked the daemon to fetch; sees the answer in the word */
			if (now_.block == Block::Resident || now_.block == Block::Clean)
				go("fetched", [](State &s) { s.lease = Lease::Held; });
			break;
		case Lease::Held:
			if (now_.pinner != Thread::Runs)
				break;
			go("pin",
			   [](State &s) { /* get_user_pages for writing faults like a store */
					  if (may_store(s, s.pinner)) {
						  s.lease = Lease::Pinned;
						  s.pin_is_this_page = true;
					  }
			   });
			go("unlease", [](State &s) { s.lease = Lease::None; });
			break;
		case Lease::Pinned:
			break;
		}
		if (now_.lease == Lease::Pinned || now_.pin_is_this_page) {
			if (now_.truth < kLastValue)
				go("DMA", [](State &s) {
					s.truth++;
					if (s.page !=
					    kNothing) /* else it goes to a page nobody sees */
						s.page = s.truth;
				});
			go("unpin", [](State &s) {
				s.pin_is_this_page = false;
				if (s.lease == Lease::Pinned)
					s.lease = Lease::Held;
			});
			if (without_ == Without::LeaseDuringPin && now_.lease == Lease::Pinned)
				go("unlease, still pinned",
				   [](State &s) { s.lease = Lease::None; });
		}
	}

	/* ---- the daemon ---- */

	void daemon()
	{
		if (now_.step == Step::Dead) {
			go("new daemon", [this](State &s) {
				if (without_ != Without::RecoveryUnprotect)
					s.protect = false; /* wakes nobody: DONTWAKE */
				s.step = Step::Unprotected;
			});
			return;
		}
		if (now_.kills < 2)
			go("kill -9", [](State &s) {
				s.kills++;
				s.step = Step::Dead;
				s.bounce = kNothing;
				s.hand_protected = s.hand_missing = false;
			});
		switch (now_.step) {
		case Step::Idle:
			idle();
			break;
		case Step::Reading:
			go("fill", [](State &s) {
				if (s.page == kNothing) {
					s.page = s.record;
					s.protect = true;
				}
				s.step = Step::Filled;
			});
			break;
		case Step::Filled:
			go("resident", [](State &s) {
				s.block = Block::Clean;
				wake(s);
				s.step = Step::Idle;
			});
			break;
		case Step::Unprotected:
			go("scan", [this](State &s) {
				bool here = s.page != kNothing;
				if (without_ == Without::PageWins && s.record != kNothing)
					s.page = s.record;
				s.block = here                   ? Block::Resident
					  : s.record != kNothing ? Block::Cold
								 : Block::Lost;
				s.step = Step::Scanned;
			});
			break;
		case Step::Scanned:
			go("wake", [this](State &s) {
				if (without_ != Without::RecoveryWake)
					wake(s);
				s.step = Step::Idle;
			});
			break;
		case Step::Claimed:
		case Step::Protected:
		case Step::Checked:
			protect_and_copy();
			break;
		default:
			spill();
		}
	}

	/* Between steps of a spill events are read too; what they do depends on the block. */
	void take_event()
	{
		if (now_.event_protected || now_.event_missing)
			go("read events", [](State &s) {
				s.hand_protected |= s.event_protected;
				s.hand_missing |= s.event_missing;
				s.event_protected = s.event_missing = false;
			});
		if (now_.hand_protected || now_.hand_missing)
			go("answer events", [this](State &s) { answer(s); });
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
		} else if (s.block != Block::Restoring) {
			wake(s);
		}
		s.hand_protected = s.hand_missing = false;
	}

	void idle()
	{
		take_event();
		bool clean = now_.block == Block::Clean;
		if ((clean || now_.block == Block::Resident) && !now_.leased())
			go("claim", [clean](State &s) {
				s.block = Block::Spilling;
				s.was_clean = clean;
				s.step = Step::Claimed;
			});
		if (now_.block == Block::Cold) /* a fetch or a prefetch */
			go("restore", [](State &s) {
				s.block = Block::Restoring;
				s.step = Step::Reading;
			});
	}

	static void abort(State &s)
	{
		unprotect(s);
		s.block = Block::Resident;
		s.bounce = kNothing;
		s.step = Step::Idle;
	}

	/* Steps 1 to 3a. */
	void protect_and_copy()
	{
		const bool copy_first = without_ == Without::ProtectBeforeCopy;
		switch (now_.step) {
		case Step::Claimed:
			if (copy_first)
				go("copy", [](State &s) {
					s.bounce = s.page;
					s.step = Step::Checked;
				});
			else
				go("protect", [](State &s) {
					s.protect = true;
					s.step = Step::Protected;
				});
			break;
		case Step::Protected:
			if (now_.leased() && without_ != Without::LeaseCheckAtProtect)
				go("abort", abort);
			else
				go("no lease", [](State &s) { s.step = Step::Checked; });
			break;
		case Step::Checked:
			if (copy_first)
				go("protect", [](State &s) {
					s.protect = true;
					s.step = Step::Copied;
				});
			else
				go("copy", [](State &s) {
					s.bounce = s.page;
					s.step = Step::Copied;
				});
			break;
		default:
			break;
		}
	}

	void spill()
	{
		const bool aborted = now_.block == Block::Aborted;
		switch (now_.step) {
		case Step::Copied:
			take_event();
			go("write", [this](State &s) {
				if (!s.was_clean && without_ != Without::Commit)
					s.record = s.bounce;
				s.step = Step::Written;
			});
			break;
		case Step::Written:
			take_event();
			go("drain", [this](State &s) {
				if (without_ != Without::Drain) {
					s.hand_protected |= s.event_protected;
					s.hand_missing |= s.event_missing;
					s.event_protected = s.event_missing = false;
					if (s.hand_protected || s.hand_missing)
						answer(s);
				}
				s.step = Step::Drained;
			});
			break;
		case Step::Drained:
			if (aborted || (now_.leased() && without_ != Without::LeaseCheck))
				go("abort", abort);
			else
				go("punching", [this](State &s) {
					if (without_ == Without::ProtectUntilPunched)
						unprotect(s);
					s.block = Block::Punching;
					s.step = Step::Punching;
				});
			break;
		case Step::Punching:
			go("punch", [](State &s) {
				s.page = kNothing;
				s.step = Step::Punched;
			});
			break;
		case Step::Punched:
			go("record", [](State &s) {
				if (!s.was_clean)
					s.record = s.bounce;
				s.block = Block::Cold;
				s.bounce = kNothing;
				s.step = Step::Recorded;
			});
			break;
		case Step::Recorded:
			go("unprotect", [](State &s) {
				unprotect(s);
				s.step = Step::Idle;
			});
			break;
		default:
			break;
		}
	}

	const Without without_;
	State now_;
	std::unordered_map<State, From, Hash> seen_;
	std::queue<State> queue_;
};

std::string found_without(Without what)
{
	Model model(what);
	std::string found = model.explore();
	std::cout << "# " << model.nr_states() << " states" << (found.empty() ? "" : "; " + found)
		  << "\n";
	return found;
}

TEST(SpillModel, NothingIsLostAndNobodyWaitsForEver)
{
	Model model(Without::Nothing);
	EXPECT_EQ(model.explore(), "");
	std::cout << "# " << model.nr_states()
		  << " states: what can be read is what was written last, no block is lost, no "
		     "thread waits for ever\n";
	EXPECT_GT(model.nr_states(), 10000u) << "most of the model was not reached";
}

TEST(SpillModel, WhatOnlySavesWorkMayBeLeftOut)
{
	EXPECT_EQ(found_without(Without::Drain), "");
	EXPECT_EQ(found_without(Without::RecoveryUnprotect), "");
}

struct Case {
	Without what;
	const char *name, *found;
};
class SpillModelWithout : public testing::TestWithParam<Case> {};

TEST_P(SpillModelWithout, IsFound)
{
	EXPECT_EQ(found_without(GetParam().what).rfind(GetParam().found, 0), 0u);
}

INSTANTIATE_TEST_SUITE_P(
	Safeguard, SpillModelWithout,
	testing::Values(
		Case{Without::ProtectUntilPunched, "ProtectUntilPunched",
		     "a read gives an old value"},
		Case{Without::ProtectBeforeCopy, "ProtectBeforeCopy", "a read gives an old value"},
		Case{Without::LeaseCheck, "LeaseCheck", "a leased block left memory"},
		Case{Without::LeaseCheckAtProtect, "LeaseCheckAtProtect",
		     "a read gives an old value"},
		Case{Without::WriteToClean, "WriteToClean", "a read gives an old value"},
		Case{Without::PageWins, "PageWins", "a read gives an old value"},
		Case{Without::RecoveryWake, "RecoveryWake", "a thread waits for ever"},
		Case{Without::LeaseDuringPin, "LeaseDuringPin", "a read gives an old value"},
		Case{Without::Commit, "Commit", "a block is lost"}),
	[](const auto &one) { return one.param.name; });

} // namespace
