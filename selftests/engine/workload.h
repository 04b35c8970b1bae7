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
#include <random>
#include <string>
#include <vector>

namespace cxlkv::engine {

struct WorkloadOptions {
	uint32_t conversations = 32;
	uint32_t rounds = 4;     /* turns of each conversation */
	uint32_t context = 2048; /* tokens; conversations end between half of it and all of it */
	uint32_t reply = 64;     /* tokens decoded in a turn */
	uint64_t seed = 1;
};

struct Turn {
	uint32_t conversation = 0;
	size_t text_offset = 0; /* of the user's text */
	uint32_t text_bytes = 0;
	uint32_t reply = 0;
};

/* Turns in the order they are served; every round has its own order. EINVAL where they do not fit.
 */
Result<std::vector<Turn>> plan_turns(const WorkloadOptions &options, size_t text_size);

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

/*
 * The turns of each conversation in order, each a gap after the last one's end.
 * Who is due first is next; time is given in ms, and gaps are compressed by scale.
 */
class Schedule {
public:
	Schedule(const std::vector<Turn> &turns, const WorkloadOptions &options, const Gaps &gaps,
		 double scale);

	[[nodiscard]] bool empty() const { return due_.empty(); }
	[[nodiscard]] double due_ms() const { return due_.begin()->first; }
	/* Takes the next turn; now_ms is when it was over. */
	[[nodiscard]] Turn take();
	void ended(const Turn &turn, double now_ms);

private:
	double gap_ms();

	std::vector<std::deque<Turn>> turns_; /* by conversation */
	std::multimap<double, uint32_t> due_; /* to conversation */
	const Gaps gaps_;
	const double scale_;
	std::mt19937_64 random_;
};

} // namespace cxlkv::engine
