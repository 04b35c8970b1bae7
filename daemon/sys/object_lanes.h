/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The manager's side of a client's rings for keyed objects. The client may
 * write anything there: an item is copied once and then looked at, and our own
 * counters are the ones that count.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "sys/event_signal.h"

#include <array>
#include <cxl_kv_shared.h>
#include <deque>
#include <memory>
#include <vector>

namespace cxlkv {

class ObjectLanes {
public:
	/* files: as they came, CXL_KV_NR_LANE_FILES of them. EINVAL, EPERM with what is wrong. */
	static Result<std::unique_ptr<ObjectLanes>> create(std::deque<Fd> files);

	/* Readable when there is something to take. */
	[[nodiscard]] int doorbell() const { return doorbell_.get(); }
	/* Whether there is something to take; costs no system call. */
	[[nodiscard]] bool waiting() const;
	/* The client looked for its last results again and again instead of sleeping. */
	[[nodiscard]] bool client_looks() const;
	/* While we look too, the client leaves the doorbell alone: waiting() is to be asked once
	 * more after we said that we do not. True: that is new. */
	bool set_looking(bool looking);
	/* Keys that the client looked up, and found, until its last item; since its rings are. */
	struct Lookups {
		uint64_t nr = 0, nr_hits = 0;
	};
	[[nodiscard]] Lookups lookups() const;
	/* Appends at most max items. False: the client's counter makes no sense. */
	bool take(cxl_kv_lane_class lane, size_t max, std::vector<cxl_kv_item> *items);
	/* False: there is no room, so the client had more items out than it may. */
	bool complete(cxl_kv_lane_class lane, uint32_t id, int result);
	/* Tells the client of what was completed since; never waits for it. */
	void notify();

private:
	ObjectLanes() = default;

	Fd doorbell_;
	std::vector<EventSignal> events_; /* one a lane */
	Mapping mapping_;
	cxl_kv_lane *lanes_ = nullptr;
	struct Counters {
		uint32_t item_tail = 0, result_head = 0, nr_polls = 0;
		bool news = false, polled = false;
	};
	std::array<Counters, CXL_KV_NR_LANES> own_;
	bool looking_ = false;
};

/* A file that a client wants objects to be copied to and from; by system calls only. */
class ObjectBuffer {
public:
	static Result<std::unique_ptr<ObjectBuffer>> create(Fd file, uint64_t bytes);

	[[nodiscard]] bool holds(uint64_t offset, uint64_t bytes) const
	{
		return offset <= bytes_ && bytes <= bytes_ - offset;
	}
	[[nodiscard]] int fd() const { return file_.get(); }

private:
	ObjectBuffer(Fd file, uint64_t bytes) : file_(std::move(file)), bytes_(bytes) {}

	Fd file_;
	uint64_t bytes_;
};

} // namespace cxlkv
