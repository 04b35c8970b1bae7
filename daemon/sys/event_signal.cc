/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/event_signal.h"

namespace cxlkv {

void EventSignal::Exit::operator()(io_uring *ring) const
{
	io_uring_queue_exit(ring);
	delete ring;
}

Result<EventSignal> EventSignal::create(int fd)
{
	auto made = std::make_unique<io_uring>();

	if (int rc = io_uring_queue_init(1, made.get(), 0); rc < 0)
		return error(-rc, "make a ring that signals a client");
	std::unique_ptr<io_uring, Exit> ring(made.release());
	if (int rc = io_uring_register_eventfd(ring.get(), fd); rc < 0)
		return error(-rc, "signal a client's eventfd");
	return EventSignal(std::move(ring));
}

/* The request does nothing and is complete when submit returns. */
void EventSignal::signal() const
{
	if (io_uring_sqe *request = io_uring_get_sqe(ring_.get()))
		io_uring_prep_nop(request);
	io_uring_submit(ring_.get());
	io_uring_cq_advance(ring_.get(), io_uring_cq_ready(ring_.get()));
}

} // namespace cxlkv
