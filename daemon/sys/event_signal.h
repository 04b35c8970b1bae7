/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Signals an eventfd that a client has open too. The client can fill its counter
 * and clear O_NONBLOCK at any moment, and then a write would wait for it, for as
 * long as it likes. The completion of a request of io_uring signals without ever
 * waiting.
 */
#pragma once

#include "base/result.h"

#include <liburing.h>
#include <memory>

namespace cxlkv {

class EventSignal {
public:
	/* Keeps the eventfd, whatever becomes of fd. */
	static Result<EventSignal> create(int fd);
	void signal() const;

private:
	struct Exit {
		void operator()(io_uring *ring) const;
	};
	explicit EventSignal(std::unique_ptr<io_uring, Exit> ring) : ring_(std::move(ring)) {}

	std::unique_ptr<io_uring, Exit> ring_;
};

} // namespace cxlkv
