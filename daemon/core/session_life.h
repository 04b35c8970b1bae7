/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of a session: active -> idle -> parked warm -> parked cold -> dropped.
 * Down by silence, a stage at a time; up at once by what the engine says, and by
 * what is merely seen only when it is seen twice. Pure: the caller has the clock.
 */
#pragma once

#include <cstdint>
#include <string>

namespace cxlkv {

/* Each documented in cxl-kvd.toml(5), table session. */
struct SessionOptions {
	uint32_t idle_ms = 10'000;       /* without a sign of life: idle */
	uint32_t resume_ms = 1'000;      /* two touches within it: active again */
	uint32_t warm_ms = 120'000;      /* ... parked warm: leaves hot though there is room */
	uint32_t cold_ms = 600'000;      /* ... parked cold: leaves memory */
	uint32_t drop_ms = 0;            /* ... dropped; 0 = never, as above */
	uint32_t min_residency_ms = 500; /* in a stage before the next one down */
	uint32_t reserve_blocks = 1;     /* of each head, kept free for each active session */
	uint32_t max_wakes = 8;          /* at a time */
	uint32_t max_wake_permil = 500; /* of hot and warm memory that wakes may be bringing back */
};

/* "" or what is wrong: option, value, what it takes. */
std::string check_session_options(const SessionOptions &options);

class SessionLife {
public:
	enum class State : uint8_t { Free, Active, Idle, ParkedWarm, ParkedCold, Dropped };
	static constexpr uint32_t nr_states = 6;

	[[nodiscard]] State state() const { return state_; }
	[[nodiscard]] bool active() const { return state_ == State::Active; }
	/* Its last sign of life: the order in which idle sessions leave. */
	[[nodiscard]] uint64_t used_ms() const { return used_ms_; }

	/* The engine said that it runs, or waits for its blocks. */
	void use(uint64_t now_ms);
	/* It was seen to be touched, which may be a stray access. */
	void touch(uint64_t now_ms, uint64_t resume_ms);
	/* The engine said that it waits for its user. */
	void park(uint64_t now_ms);
	/* Its KV is given up, whatever its age. */
	void drop(uint64_t now_ms) { enter(State::Dropped, now_ms); }
	/* Time passed: at most one stage down. */
	void age(uint64_t now_ms, const SessionOptions &options);

private:
	void enter(State state, uint64_t now_ms);

	State state_ = State::Free;
	uint64_t used_ms_ = 0, since_ms_ = 0, touched_ms_ = 0;
};

/* What the sessions that are active now keep from others. */
struct ActiveLoad {
	uint32_t nr = 0;
	uint64_t bytes = 0;         /* in memory, or being woken */
	uint64_t reserve_bytes = 0; /* their next blocks */
	uint64_t first_used_ms = 0; /* the longest silent one's last sign of life */
};

/*
 * 0: a session that needs so many bytes may become active within the limit; else
 * the time after which to ask again. With no other active it always may: what a
 * session alone does not fit into, its own blocks make way for each other.
 */
uint32_t admission_retry_ms(const ActiveLoad &load, uint64_t limit_bytes, uint64_t need_bytes,
			    uint64_t now_ms, const SessionOptions &options);

} // namespace cxlkv
