/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What `cxl-kv record` writes down: the turns of sessions, each with the blocks
 * of its prompt, and the attention that one session reports. It listens to the
 * hints on their way to the policy; while nobody records it costs a load.
 *
 * A block's id is a hash of what the first head of the first layer holds there
 * and of the blocks before it. That depends on the tokens and their positions
 * alone, so the same prefix has the same ids, whichever slot it is in.
 */
#pragma once

#include "base/result.h"
#include "sys/arena.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace cxlkv {

class Recorder {
public:
	enum class What : uint8_t { Requests, Attention };
	/* A line to a connection; false: the peer is gone. */
	using Send = std::function<bool(uint64_t connection, const std::string &line)>;

	explicit Recorder(Send send) : send_(std::move(send)) {}

	/* id: of the request, repeated in each event. One recording a connection: EBUSY. */
	Result<> begin(uint64_t connection, const nlohmann::json &id, What what, uint64_t now_ms);
	/* Tells it of turns that are under way, then that this is all. */
	void end(uint64_t connection);
	void hangup(uint64_t connection);

	[[nodiscard]] bool active() const { return nr_recordings_ > 0; }
	/* A ring holds few steps of it: hints should be taken often. */
	[[nodiscard]] bool attention() const { return nr_attention_ > 0; }

	/* In the order in which things happened; the caller sees to that. */
	void hint(Arena &arena, const cxl_kv_hint &hint, uint64_t now_ms);
	/* A session is opened, or about to be closed and its blocks dropped. */
	void opened(Arena &arena, uint32_t slot, uint64_t now_ms);
	void closing(Arena &arena, uint32_t slot);
	void detach(uint32_t arena);

private:
	struct Recording {
		nlohmann::json id;
		What what;
		uint64_t begin_ms;
		/* Attention: the first session that reports some. */
		std::optional<std::pair<uint32_t, uint32_t>> session;
	};
	struct Session {
		uint32_t tokens_per_block = 0;
		uint32_t position = 0;
		std::vector<uint64_t> ids; /* of the full blocks, as far as they were read */
		bool in_turn = false, in_prompt = false;
		uint64_t turn_ms = 0;
		uint32_t turn_position = 0, prompt_end = 0;
		/* Since the last position: head, block, blocks, score. */
		std::vector<std::array<uint32_t, 4>> scores;
	};
	using Name = std::pair<uint32_t, uint32_t>; /* arena, slot */

	void forget(uint64_t connection);
	void begin_turn(Session &session, uint64_t now_ms);
	void end_turn(Arena &arena, Name name, Session &session);
	void move_to(Arena &arena, Name name, Session &session, uint32_t position);
	void read_ids(Arena &arena, uint32_t slot, Session &session, bool at_any_cost);
	void tell_turn(const Session &session, uint64_t connection, const Recording &recording);
	void tell_attention(Name name, Session &session, uint32_t step);
	void end_attention(Name name);
	void send(uint64_t connection, const Recording &recording, nlohmann::json event);

	const Send send_;
	std::atomic<uint32_t> nr_recordings_{0}, nr_attention_{0};
	std::mutex mutex_;
	uint64_t seed_ = 0;                        /* ids say nothing to who does not know it */
	std::map<uint64_t, Recording> recordings_; /* by connection */
	std::map<Name, Session> sessions_;
};

} // namespace cxlkv
