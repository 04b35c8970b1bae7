/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_checkpointer.h"

#include <cstring>

namespace cxlkv {

namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(100);
/* A checkpoint costs at most 1/64 of what was written since the last one, and recovery reads that
 * much. */
constexpr uint64_t kLogPerCheckpoint = 64;
constexpr uint64_t kMinLogSegments = 4;

} // namespace

bool StoreCheckpointer::due() const
{
	const SegmentTable &segments = volume_.segments;
	uint64_t interval = std::max(kLogPerCheckpoint * 2 * checkpoint_bytes(segments),
				     kMinLogSegments * segments.segment_bytes());

	if (requested_ || volume_.failed_seq || volume_.log_bytes_since_checkpoint >= interval)
		return true;
	/* Dropped contents are not to stay longer than they must. */
	if (volume_.options.wipe == StoreOptions::Wipe::Secure && segments.nr_freed() &&
	    !segments.evacuating())
		return true;
	return freed_are_wanted();
}

/* Many segments with each checkpoint, a little before there are none; any when no more will come.
 */
bool StoreCheckpointer::freed_are_wanted() const
{
	const SegmentTable &segments = volume_.segments;
	uint32_t reserve = segments.reserve(), enough = (segments.kept_free() - reserve) * 3 / 4;

	if (!segments.nr_freed() || segments.nr_free() > reserve + 1)
		return false;
	if (segments.nr_freed() >= enough || !segments.nr_free())
		return true;
	return segments.nr_free() <= reserve && segments.victim() == Location::kNone;
}

void StoreCheckpointer::pump()
{
	if (running_ || !due() || (failed_ && std::chrono::steady_clock::now() < retry_at_))
		return;
	begin();
}

void StoreCheckpointer::retry()
{
	retry_at_ = {};
	pump();
}

void StoreCheckpointer::begin()
{
	/* It may know blocks as gone whose tombstones are not written: it says what to wipe. */
	volume_.evacuate_dropped();
	LogPosition position = volume_.position;
	position.checkpoint++;
	requested_ = false;
	running_ = true;
	volume_.log_bytes_since_checkpoint = 0;
	listed_free_ = volume_.segments.list_free();
	encoded_ = encode_checkpoint(volume_.super, volume_.segments, position);
	/* The log may go on: recovery starts behind the gap that a failed write left. */
	gap_end_ = position.seq;
	plan_steps();
	step_ = 0;
	next();
}

void StoreCheckpointer::plan_steps()
{
	uint64_t number = encoded_.header.number;
	const auto *header = reinterpret_cast<const std::byte *>(&encoded_.header);

	steps_.clear();
	/* No header of the slot may vouch for a payload that is half overwritten. */
	for (uint32_t copy = 0; copy < 2; copy++)
		steps_.push_back({IoRequest::Op::Write, nullptr, disk::kPage,
				  volume_.super.checkpoint_offset(number, copy)});
	for (uint32_t copy = 0; copy < 2; copy++) {
		uint64_t offset = volume_.super.checkpoint_offset(number, copy) + disk::kPage;
		for (size_t at = 0; at < encoded_.payload.size();
		     at += volume_.queue->buffer_bytes()) {
			size_t bytes = std::min(encoded_.payload.size() - at,
						volume_.queue->buffer_bytes());
			steps_.push_back({IoRequest::Op::Write, encoded_.payload.data() + at, bytes,
					  offset + at});
		}
	}
	steps_.push_back({IoRequest::Op::Flush});
	for (uint32_t copy = 0; copy < 2; copy++)
		steps_.push_back({IoRequest::Op::Write, header, disk::kPage,
				  volume_.super.checkpoint_offset(number, copy)});
	steps_.push_back({IoRequest::Op::Flush});
}

void StoreCheckpointer::next()
{
	const Step &step = steps_[step_++];

	if (step.op == IoRequest::Op::Write && !step.data)
		memset(volume_.queue->buffer(buffer_), 0, step.bytes);
	else if (step.op == IoRequest::Op::Write)
		memcpy(volume_.queue->buffer(buffer_), step.data, step.bytes);
	IoRequest request{step.op,
			  volume_.file_index,
			  buffer_,
			  volume_.queue->buffer(buffer_),
			  static_cast<uint32_t>(step.bytes),
			  step.offset,
			  0};
	volume_.queue->submit(request, [this](int error, uint32_t bytes) {
		volume_.stats.written_bytes += bytes;
		if (error || step_ == steps_.size())
			finish(error);
		else
			next();
	});
}

void StoreCheckpointer::finish(int error)
{
	running_ = false;
	failed_ = error != 0;
	if (error) {
		volume_.complain("checkpoint", error);
		retry_at_ = std::chrono::steady_clock::now() + kRetryPause;
		volume_.release_held(error);
		return;
	}
	volume_.position.checkpoint = encoded_.header.number;
	volume_.stats.nr_checkpoints++;
	volume_.open_seqs.erase(volume_.open_seqs.begin(), volume_.open_seqs.upper_bound(gap_end_));
	if (volume_.failed_seq <= gap_end_)
		volume_.failed_seq = 0;
	volume_.segments.release(listed_free_);
	volume_.release_held(0);
	volume_.queue->wake();
}

} // namespace cxlkv
