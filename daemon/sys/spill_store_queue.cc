/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_queue.h"

#include "sys/spill_store_disk.h"

#include <poll.h>
#include <sys/eventfd.h>

namespace cxlkv {

IoQueue::IoQueue(const StoreOptions &options)
    : stride_(options.extent_bytes + 2 * disk::kPage), nr_buffers_(options.nr_buffers)
{
}

Result<std::unique_ptr<IoQueue>> IoQueue::create(const StoreOptions &options,
						 std::span<const int> files, uint32_t nr_inner,
						 const SpillStore::IoWrapper &wrap)
{
	std::unique_ptr<IoQueue> queue(new IoQueue(options));
	uint32_t nr = options.nr_buffers + nr_inner;
	void *at = mmap(nullptr, nr * queue->stride_, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return sys_error("bounce buffers");
	queue->memory_ = Mapping(at, nr * queue->stride_);
	/* Before registering touches them. Fewer, longer pieces for the device; else 4 KiB pages
	 * serve. */
	madvise(at, nr * queue->stride_, MADV_HUGEPAGE);
	std::vector<iovec> vectors;
	for (uint32_t i = 0; i < nr; i++)
		vectors.push_back({queue->buffer(i), queue->stride_});
	for (uint32_t i = options.nr_buffers; i-- > 0;)
		queue->free_.push_back(i);
	auto io = UringIo::create(options.queue_depth, files, vectors);
	if (!io)
		return io.error();
	queue->io_ = wrap ? wrap(std::move(*io)) : std::move(*io);
	return queue;
}

/* The buffers belong to the kernel while I/O is in flight. */
IoQueue::~IoQueue()
{
	while (io_ && nr_in_flight()) {
		wait();
		reap();
	}
}

Bounce IoQueue::take()
{
	if (free_.empty())
		return {};
	uint32_t i = free_.back();
	free_.pop_back();
	return {buffer(i) + disk::kPage, i};
}

void IoQueue::give(Bounce buffer)
{
	free_.push_back(buffer.index);
}

bool IoQueue::owns(Bounce b) const
{
	return b.index < nr_buffers_ && b.data == buffer(b.index) + disk::kPage;
}

void IoQueue::submit(IoRequest request, Handler handler)
{
	request.token = next_token_++;
	if (waiting_.empty() && io_->submit(request))
		in_flight_.emplace(request.token, Waiting{request, std::move(handler)});
	else
		waiting_.push_back({request, std::move(handler)});
}

void IoQueue::collect()
{
	std::vector<IoDone> done;

	io_->reap(done);
	for (const IoDone &one : done) {
		auto it = in_flight_.find(one.token);
		if (it == in_flight_.end())
			continue;
		ready_.push_back({one.result, std::move(it->second)});
		in_flight_.erase(it);
	}
	/* The device gets its next work before the handlers take their time with checksums. */
	while (!waiting_.empty() && io_->submit(waiting_.front().request)) {
		in_flight_.emplace(waiting_.front().request.token, std::move(waiting_.front()));
		waiting_.pop_front();
	}
}

bool IoQueue::handle_one()
{
	if (ready_.empty())
		return false;
	auto [result, unit] = std::move(ready_.front());
	ready_.pop_front();
	bool moves_bytes = unit.request.op <= IoRequest::Op::Write;
	uint32_t bytes = result > 0 ? static_cast<uint32_t>(result) : 0;
	bool whole = result >= 0 && (!moves_bytes || bytes == unit.request.bytes);
	/* What a device answers beside ENOSPC (ENXIO, EREMOTEIO, ...) is one thing to the caller.
	 */
	unit.handler(whole ? 0 : result == -ENOSPC ? ENOSPC : EIO, bytes);
	return true;
}

void IoQueue::reap()
{
	collect();
	while (handle_one())
		;
}

void IoQueue::wait() const
{
	pollfd waiter{event_fd(), POLLIN, 0};

	::poll(&waiter, 1, 100);
}

void IoQueue::wake() const
{
	eventfd_write(event_fd(), 1);
}

} // namespace cxlkv
