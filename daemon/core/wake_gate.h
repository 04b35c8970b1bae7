/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How many sessions come back at a time: bounded by count and by bytes, in the
 * order in which they asked, each until its deadline. Pure: names, not sessions.
 */
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace cxlkv {

class WakeGate {
public:
	struct Wake {
		uint64_t id = 0;
		uint64_t bytes = 0;
		uint64_t deadline_ns = 0; /* 0 = none */
	};
	static constexpr size_t max_waiting = 4096;

	WakeGate(uint32_t max_wakes, uint64_t max_bytes)
	    : max_wakes_(max_wakes), max_bytes_(max_bytes)
	{
	}

	/* False: too many wait already. */
	[[nodiscard]] bool enter(const Wake &wake)
	{
		if (waiting_.size() >= max_waiting)
			return false;
		waiting_.push_back(wake);
		return true;
	}

	/* Those whose turn it is; end() each when it is over. One larger than the bound goes alone.
	 */
	std::vector<uint64_t> start()
	{
		std::vector<uint64_t> ids;
		while (!waiting_.empty() && fits(waiting_.front().bytes)) {
			const Wake &wake = waiting_.front();
			running_[wake.id] = wake.bytes;
			bytes_ += wake.bytes;
			ids.push_back(wake.id);
			waiting_.pop_front();
		}
		return ids;
	}

	void end(uint64_t id)
	{
		auto it = running_.find(id);
		if (it == running_.end())
			return;
		bytes_ -= it->second;
		running_.erase(it);
	}

	/* Those that waited too long, and are gone from here. */
	std::vector<uint64_t> expire(uint64_t now_ns)
	{
		std::vector<uint64_t> ids;
		std::erase_if(waiting_, [&](const Wake &wake) {
			bool late = wake.deadline_ns && now_ns >= wake.deadline_ns;
			if (late)
				ids.push_back(wake.id);
			return late;
		});
		return ids;
	}

	/* When expire() finds the next one; 0 = never. */
	[[nodiscard]] uint64_t next_deadline_ns() const
	{
		uint64_t next = 0;
		for (const Wake &wake : waiting_)
			if (wake.deadline_ns && (!next || wake.deadline_ns < next))
				next = wake.deadline_ns;
		return next;
	}

	[[nodiscard]] size_t nr_running() const { return running_.size(); }
	[[nodiscard]] size_t nr_waiting() const { return waiting_.size(); }
	[[nodiscard]] uint64_t running_bytes() const { return bytes_; }

private:
	[[nodiscard]] bool fits(uint64_t bytes) const
	{
		return running_.empty() ||
		       (running_.size() < max_wakes_ && bytes_ + bytes <= max_bytes_);
	}

	const uint32_t max_wakes_;
	const uint64_t max_bytes_;
	std::deque<Wake> waiting_;
	std::map<uint64_t, uint64_t> running_; /* id to bytes */
	uint64_t bytes_ = 0;
};

} // namespace cxlkv
