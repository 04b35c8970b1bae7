/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store's bounce buffers and its I/O in flight, for all its files: bounded
 * depth, the rest waits in order. A request's handler runs from reap() or
 * handle_one().
 */
#pragma once

#include "sys/spill_store.h"
#include "sys/uring.h"

#include <deque>
#include <functional>
#include <unordered_map>

namespace cxlkv {

class IoQueue {
public:
	using Handler = std::function<void(int error, uint32_t bytes)>;

	/* nr_inner buffers more than the options say, for the store's own use. */
	static Result<std::unique_ptr<IoQueue>> create(const StoreOptions &options,
						       std::span<const int> files,
						       uint32_t nr_inner,
						       const SpillStore::IoWrapper &wrap);
	~IoQueue();
	IoQueue(const IoQueue &) = delete;
	IoQueue &operator=(const IoQueue &) = delete;

	/* Callers' buffers; data is one page into the buffer, where the extent's header goes before
	 * it. */
	Bounce take();
	void give(Bounce buffer);
	[[nodiscard]] bool owns(Bounce buffer) const;
	/* Whole buffers, extent_bytes + two pages, by index; the inner ones follow the callers'. */
	[[nodiscard]] std::byte *buffer(uint32_t index) const
	{
		return memory_.data() + index * stride_;
	}
	[[nodiscard]] uint32_t inner(uint32_t i) const { return nr_buffers_ + i; }
	[[nodiscard]] size_t buffer_bytes() const { return stride_; }

	/* error is 0, ENOSPC or EIO; short I/O is EIO with the bytes that came. */
	void submit(IoRequest request, Handler handler);
	/* Takes what has completed from the device and gives it what waits. */
	void collect();
	/* Runs the handler of one request that was collected; false: there is none. */
	bool handle_one();
	[[nodiscard]] bool has_ready() const { return !ready_.empty(); }
	/* Both, until nothing is left. */
	void reap();
	/* Until something may have completed, at most 100 ms. */
	void wait() const;
	/* Makes the eventfd readable: poll() has something to say. */
	void wake() const;
	[[nodiscard]] int event_fd() const { return io_->event_fd(); }
	[[nodiscard]] size_t nr_in_flight() const
	{
		return in_flight_.size() + waiting_.size() + ready_.size();
	}

private:
	IoQueue(const StoreOptions &options);

	struct Waiting {
		IoRequest request;
		Handler handler;
	};

	struct Ready {
		int result;
		Waiting unit;
	};

	size_t stride_;
	uint32_t nr_buffers_;
	Mapping memory_;
	std::unique_ptr<BlockIo> io_;
	std::vector<uint32_t> free_;
	uint64_t next_token_ = 1;
	std::unordered_map<uint64_t, Waiting> in_flight_; /* by token */
	std::deque<Waiting> waiting_;
	std::deque<Ready> ready_; /* done, their handlers have not run */
};

} // namespace cxlkv
