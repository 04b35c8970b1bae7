/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes checkpoints in the background: payload of both copies, flush, both
 * headers, flush. When it is done, segments that it lists as free may be used.
 */
#pragma once

#include "sys/spill_store_checkpoint.h"
#include "sys/spill_store_volume.h"

#include <chrono>

namespace cxlkv {

class StoreCheckpointer {
public:
	StoreCheckpointer(StoreVolume &volume, uint32_t buffer) : volume_(volume), buffer_(buffer)
	{
	}

	/* One that knows everything of now. */
	void request() { requested_ = true; }
	[[nodiscard]] bool wanted() const { return requested_ || running_; }
	/* The last one failed; the next is tried after a pause. */
	[[nodiscard]] bool failed() const { return failed_; }
	void pump();
	/* As pump(), without the pause after a failure: somebody waits. */
	void retry();

private:
	struct Step {
		IoRequest::Op op;
		const std::byte *data = nullptr; /* null: zeroes */
		size_t bytes = 0;
		uint64_t offset = 0;
	};

	[[nodiscard]] bool due() const;
	[[nodiscard]] bool freed_are_wanted() const;
	void begin();
	void plan_steps();
	void next();
	void finish(int error);

	StoreVolume &volume_;
	uint32_t buffer_;
	bool requested_ = false, running_ = false, failed_ = false;
	std::chrono::steady_clock::time_point retry_at_{};
	uint64_t gap_end_ = 0; /* recovery from it starts behind this extent */
	EncodedCheckpoint encoded_;
	std::vector<uint32_t> listed_free_;
	std::vector<Step> steps_;
	size_t step_ = 0;
};

} // namespace cxlkv
