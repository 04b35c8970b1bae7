/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who talks when: conversations take turns, each turn some text of the user
 * and a reply. Pure: the same options give the same turns.
 */
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace cxlkv::engine {

struct WorkloadOptions {
	uint32_t conversations = 32;
	uint32_t rounds = 4;     /* turns of each conversation */
	uint32_t context = 2048; /* tokens; conversations end between half of it and all of it */
	uint32_t reply = 64;     /* tokens decoded in a turn */
	uint32_t prompts = 0;    /* texts that conversations share the beginning of; 0: nothing */
	uint32_t prompt_tokens = 128; /* of each */
	uint64_t seed = 1;
};

struct Turn {
	uint32_t conversation = 0;
	uint32_t prompt_bytes = 0; /* said first: the start of a shared text */
	size_t prompt_offset = 0;
	size_t text_offset = 0; /* of the user's own text */
	uint32_t text_bytes = 0;
	uint32_t reply = 0;
	double gap_ms = 0; /* since the conversation's turn before */
};

/* Of one conversation and turn: what part of its text is said, and after how long. */
struct Beat {
	double share = 0;
	double gap_ms = 0;
};
/* [conversation][turn]; shares of a conversation add up to one. */
using Pace = std::vector<std::vector<Beat>>;

/*
 * Turns in the order they are served where nobody waits; every round has its own
 * order. EINVAL where they do not fit.
 */
Result<std::vector<Turn>> plan_turns(const WorkloadOptions &options, size_t text_size,
				     const Pace &pace);

/* All turns are alike and follow at once. */
Pace even_pace(const WorkloadOptions &options);

/* How long people let pass from one turn to the next: quantiles of real gaps (gaps.txt). */
class Gaps {
public:
	/* One number a line, ms, ascending; '#' begins a comment. */
	static Result<Gaps> read(const std::string &file);
	/* The gap that a share u of all is not above; u in [0, 1]. */
	[[nodiscard]] double ms(double u) const;

private:
	std::vector<double> quantiles_;
};

/* Likewise, after gaps that are drawn from those. */
Pace drawn_pace(const WorkloadOptions &options, const Gaps &gaps);

/*
 * The turns of each conversation in order, each a gap after the last one's end.
 * Who is due first is next; time is given in ms, and gaps are compressed by scale.
 */
class Schedule {
public:
	Schedule(const std::vector<Turn> &turns, const WorkloadOptions &options, double scale);

	[[nodiscard]] bool empty() const { return due_.empty(); }
	[[nodiscard]] double due_ms() const { return due_.begin()->first; }
	/* Takes the next turn; now_ms is when it was over. */
	[[nodiscard]] Turn take();
	void ended(const Turn &turn, double now_ms);

private:
	std::vector<std::deque<Turn>> turns_; /* by conversation */
	std::multimap<double, uint32_t> due_; /* to conversation */
	const double scale_;
};

} // namespace cxlkv::engine
