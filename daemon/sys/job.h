/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A request on its way: where it got to in its extents, and what its answer will be. */
#pragma once

#include "sys/served_arena.h"

#include <memory>

namespace cxlkv {

struct Job {
	Job(Request &&job_request, ServedArena *arena)
	    : request(std::move(job_request)), served(arena)
	{
	}

	Request request;
	ServedArena *served; /* lives until no job names it */
	uint64_t start_ns = now_ns();
	Outcome outcome;
	uint32_t nr_open = 0; /* spills in flight */
	uint64_t admitted_ns = 0;

	/* The cursor: blocks before it are dealt with. */
	size_t extent = 0;
	uint32_t offset = 0;

	[[nodiscard]] bool at_end() const { return extent == request.extents.size(); }
	[[nodiscard]] uint32_t block() const { return request.extents[extent].first + offset; }
	/* Blocks from the cursor to the end of its extent: adjacent ones. */
	[[nodiscard]] uint32_t nr_adjacent() const { return request.extents[extent].nr - offset; }
	void advance(uint32_t nr)
	{
		offset += nr;
		if (offset == request.extents[extent].nr) {
			extent++;
			offset = 0;
		}
	}
	void fail(int error, uint32_t at)
	{
		if (!outcome.error)
			outcome = {.error = error, .block = at, .nr_done = outcome.nr_done};
	}
	[[nodiscard]] bool expired(uint64_t now) const
	{
		return request.deadline_ns && now >= request.deadline_ns;
	}
};

using JobPtr = std::shared_ptr<Job>;

} // namespace cxlkv
