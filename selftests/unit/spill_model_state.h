/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A state of the model of spill_model.h, and what must hold in each that can be reached. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>

namespace cxlkv::model {

/* What is left out of the protocol. */
enum class Without {
	Nothing,
	ProtectUntilPunched, /* un-protect first, then punch */
	ProtectBeforeCopy,
	LeaseCheck, /* step 5 does not look at leases */
	LeaseCheckAtProtect,
	Drain,             /* step 4: only saves work */
	FinalUnprotect,    /* step 9: its late writers are events that wait */
	AbortUnprotect,    /* as step 9 */
	WriteToClean,      /* a write to a clean block leaves it clean */
	PageWins,          /* a new daemon prefers the record to the page */
	EmptyWord,         /* a new daemon does not ask what the client's word says of a hole */
	RecoveryUnprotect, /* saves faults */
	RecoveryWake,
	LeaseDuringPin, /* the client gives the lease back while it still pins */
	LongLimit,      /* a lease may expire while a pin is under it */
	AgeReset,       /* a new lease inherits the age of those before it */
	ExpiredFirst,   /* who gives a lease back takes one that counts */
	Commit,         /* the hole is made before the record is complete */
	Fetch,          /* the daemon takes no notice of requests */
	AskAgain,       /* a request that a dead daemon had is forgotten */
	WordFirst,      /* a drop punches, and then says so in the word */
	LeaseCheckOfDrop,
	LostWord, /* a new daemon believes a record that it finds for a block that is lost */
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
	Emptied,   /* a drop or a forget: the word says so */
	Voided,    /* there is no record, the daemon knows */
	Gone,      /* nor a page */
	Dead,
	Unprotected, /* a new daemon, 1 */
	Scanned,     /* 2, 3 */
};
enum class Block : uint8_t {
	Empty,
	Resident,
	Clean,
	Spilling,
	Aborted,
	Punching,
	Cold,
	Restoring,
	Lost
};
enum class Thread : uint8_t { Runs, WaitsProtected, WaitsMissing };

constexpr int8_t kNothing = -1;
constexpr int8_t kZeros = 0;
constexpr int8_t kForgotten = -2; /* whoever reads it is told that it is lost */
constexpr int8_t kLastValue = 2;  /* so many writes; then clients only read */

/* A lease of one of two threads. */
struct Lease {
	/* Leased is counted in the word, and the block is to be fetched; Asked is after the
	 * request. */
	enum class Is : uint8_t { None, Leased, Asked, Held, Pinned };

	Is is = Is::None;
	bool young = false; /* taken since the daemon's last tick */
	bool over = false;  /* expired: it protects nothing, and its thread only gives it back */

	[[nodiscard]] bool waits() const { return is == Is::Leased || is == Is::Asked; }
	[[nodiscard]] bool protects() const
	{
		return (is == Is::Held || is == Is::Pinned) && !over;
	}
};

struct State {
	/* kernel */
	int8_t page = kNothing; /* its value, or a hole */
	bool protect = false;
	bool event_protected = false, event_missing = false; /* in the queue */
	bool hand_protected = false, hand_missing = false;   /* read by the daemon, not answered */
	/* client */
	int8_t truth = kZeros; /* the last value that a write ended with, zeros after a drop */
	int8_t nr_written = 0; /* each write writes its number */
	Thread writer = Thread::Runs, pinner = Thread::Runs;
	Lease pins, uses; /* one thread makes pins under its lease */
	bool pin_is_this_page = false;
	bool drop_asked = false; /* and after a crash again, until it is answered */
	/* the word: the counts; its state is `block` */
	uint8_t leases = 0, expired = 0, age = 0; /* age: 0 to 1, where the real one has thirds */
	/* daemon */
	Step step = Step::Idle;
	Block block = Block::Empty;
	bool was_clean = false; /* the spill writes nothing */
	int8_t bounce = kNothing;
	uint8_t kills = 0;
	bool voided = false; /* the record; it is still to be written down */
	/* store */
	int8_t record = kNothing; /* the newest complete one */

	[[nodiscard]] bool here() const
	{
		return block == Block::Resident || block == Block::Clean ||
		       block == Block::Spilling || block == Block::Aborted;
	}
	/* The client, for something that only the daemon can give. */
	[[nodiscard]] bool waits() const
	{
		return writer != Thread::Runs || pinner != Thread::Runs || pins.waits() ||
		       uses.waits() || drop_asked;
	}
	bool operator==(const State &other) const { return !memcmp(this, &other, sizeof(State)); }
};
static_assert(sizeof(State) == 28, "no padding, or comparing bytes is wrong");

struct Hash {
	size_t operator()(const State &s) const
	{
		return std::hash<std::string_view>()(
			{reinterpret_cast<const char *>(&s), sizeof(s)});
	}
};

/* What is wrong with it, or "". */
inline const char *wrong_with(const State &s)
{
	const auto counted = [](const Lease &lease) { return lease.is != Lease::Is::None; };

	if (s.page != kNothing && s.page != s.truth)
		return "a read gives an old value";
	if (s.block == Block::Lost && s.page == kNothing && s.truth != kForgotten)
		return "a block is lost";
	if (s.page == kNothing && (s.pins.protects() || s.uses.protects()))
		return "a leased block left memory";
	if (s.leases + s.expired != counted(s.pins) + counted(s.uses))
		return "the counts of leases are wrong";
	return "";
}

} // namespace cxlkv::model
