/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/session_life.h"

#include <algorithm>

namespace cxlkv {

namespace {

constexpr uint32_t max_ms = 7u * 24 * 3600 * 1000;
/* Sessions end and park at any time: nobody is told to stay away for longer. */
constexpr uint64_t min_retry_ms = 10, max_retry_ms = 1000;

std::string wrong(const char *name, uint32_t value, const std::string &takes)
{
	return std::string(name) + " is " + std::to_string(value) + ", it takes " + takes;
}

} // namespace

std::string check_session_options(const SessionOptions &o)
{
	const struct {
		const char *name;
		uint32_t value, above;
		const char *above_name;
		bool may_be_never;
	} stages[] = {
		{"idle_ms", o.idle_ms, o.resume_ms, "resume_ms", false},
		{"warm_ms", o.warm_ms, o.idle_ms, "idle_ms", true},
		{"cold_ms", o.cold_ms, std::max(o.idle_ms, o.warm_ms), "warm_ms", true},
		{"drop_ms", o.drop_ms, std::max({o.idle_ms, o.warm_ms, o.cold_ms}), "cold_ms",
		 true},
	};
	for (const auto &stage : stages) {
		if (stage.may_be_never && !stage.value)
			continue;
		if (stage.value <= stage.above || stage.value > max_ms)
			return wrong(stage.name, stage.value,
				     std::string("more than ") + stage.above_name +
					     " and at most " + std::to_string(max_ms));
	}
	return "";
}

void SessionLife::enter(State state, uint64_t now_ms)
{
	if (state_ == state)
		return;
	state_ = state;
	since_ms_ = now_ms;
	touched_ms_ = 0;
}

void SessionLife::use(uint64_t now_ms)
{
	used_ms_ = now_ms;
	enter(State::Active, now_ms);
}

void SessionLife::touch(uint64_t now_ms, uint64_t resume_ms)
{
	if (state_ == State::Active) {
		used_ms_ = now_ms;
	} else if (touched_ms_ && now_ms > touched_ms_ && now_ms - touched_ms_ <= resume_ms) {
		use(now_ms);
	} else {
		touched_ms_ = now_ms;
	}
}

void SessionLife::park(uint64_t now_ms)
{
	used_ms_ = now_ms;
	if (state_ != State::Dropped)
		enter(State::Idle, now_ms);
}

void SessionLife::age(uint64_t now_ms, const SessionOptions &o)
{
	const uint64_t quiet_ms = now_ms > used_ms_ ? now_ms - used_ms_ : 0;
	auto past = [&](uint32_t threshold_ms) { return threshold_ms && quiet_ms >= threshold_ms; };

	if (now_ms < since_ms_ + o.min_residency_ms)
		return;
	switch (state_) {
	case State::Active:
		if (past(o.idle_ms))
			enter(State::Idle, now_ms);
		break;
	case State::Idle:
		if (past(o.warm_ms))
			enter(State::ParkedWarm, now_ms);
		else if (past(o.cold_ms))
			enter(State::ParkedCold, now_ms);
		else if (past(o.drop_ms))
			enter(State::Dropped, now_ms);
		break;
	case State::ParkedWarm:
		if (past(o.cold_ms))
			enter(State::ParkedCold, now_ms);
		else if (past(o.drop_ms))
			enter(State::Dropped, now_ms);
		break;
	case State::ParkedCold:
		if (past(o.drop_ms))
			enter(State::Dropped, now_ms);
		break;
	case State::Free:
	case State::Dropped:
		break;
	}
}

uint32_t admission_retry_ms(const ActiveLoad &load, uint64_t limit_bytes, uint64_t need_bytes,
			    uint64_t now_ms, const SessionOptions &options)
{
	if (!load.nr || load.bytes + load.reserve_bytes + need_bytes <= limit_bytes)
		return 0;
	/* Then the longest silent one is idle, if nothing is heard of it. */
	const uint64_t idle_at = load.first_used_ms + options.idle_ms;
	const uint64_t wait = idle_at > now_ms ? idle_at - now_ms : 0;
	return static_cast<uint32_t>(std::clamp(wait, min_retry_ms, max_retry_ms));
}

} // namespace cxlkv
