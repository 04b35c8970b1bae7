/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Judges where pages were while they were read, and what was moved for it. Pure:
 * it is told what was read since it last looked, and where all pages are now.
 * Reads count by where their page is at the look that follows them, four times
 * an interval.
 */
#pragma once

#include "peers/places.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace cxlkv::peers {

struct Verdict {
	uint64_t nr_reads = 0, nr_hot_reads = 0;           /* of pages */
	uint64_t nr_late_reads = 0, nr_late_hot_reads = 0; /* of these, in the second half */
	uint64_t nr_promoted = 0, nr_demoted = 0;          /* pages */
	/*
	 * Promoted and then read where they are; demoted, and neither brought back soon after
	 * nor of the hot set by then. By the oracle, not by whether they are read at all: a
	 * page of which a read comes now and then makes way for better ones.
	 */
	uint64_t nr_useful = 0;
	uint64_t nr_ping_pong = 0; /* moved back soon after a move */
	uint64_t nr_promoted_of_hot_set = 0;
	double recall = 0; /* of the hot set in the hot node, mean over the second half */
	/* Intervals until nine of ten pages of a new hot set were hot; none: it ended before. */
	std::vector<std::optional<double>> converged;

	[[nodiscard]] uint64_t nr_moved() const { return nr_promoted + nr_demoted; }
};

class Judge {
public:
	static constexpr uint32_t looks = 4; /* an interval */

	Judge(uint32_t nr_intervals, std::vector<Place> places);

	/* pages: sorted. */
	void hot_set(const std::vector<uint32_t> &pages, bool jumped);
	void read(uint32_t page) { reads_[page]++; }
	/* Pages that were made since the last look have not moved. */
	void look(const std::vector<Place> &places);

	/* After the last look. */
	[[nodiscard]] Verdict verdict() const;

private:
	/* A move back within so many intervals is no use to anybody. */
	static constexpr uint32_t soon = 4 * looks;
	struct Last {
		uint32_t look = 0; /* of its last move; 0: it never moved */
		bool up = false, judged = false;
	};

	void move(uint32_t page, bool up);
	void count_reads(uint32_t page, Place place);
	void judge_demotion(uint32_t page);
	[[nodiscard]] double recall() const;
	void converge();

	const uint32_t nr_looks_;
	uint32_t look_ = 0;
	std::vector<Place> places_;
	std::vector<uint32_t> reads_;
	std::vector<Last> last_;
	std::vector<bool> is_hot_;
	uint64_t nr_hot_set_ = 0;
	std::optional<uint32_t> jumped_;
	uint64_t nr_wrongly_demoted_ = 0, nr_read_promoted_ = 0;
	double recall_sum_ = 0;
	uint32_t nr_recalls_ = 0;
	Verdict verdict_;
};

} // namespace cxlkv::peers
