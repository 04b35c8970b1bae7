/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "recorder.h"

#include <algorithm>
#include <bit>
#include <sys/random.h>
#include <unistd.h>

namespace cxlkv {

using nlohmann::json;

namespace {

/* Scores of one step that are kept; beyond that a client talks nonsense. */
constexpr size_t max_scores = 1 << 20;
/* JSON numbers are exact up to here in every reader. */
constexpr uint64_t id_mask = (1ull << 53) - 1;

uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = std::rotl((hash ^ word) * 0x9E3779B97F4A7C15, 31) * 0xBF58476D1CE4E5B9;
	return hash ^ hash >> 29;
}

/* What a block of the first head holds; nothing where it is not in memory just now. */
std::optional<uint64_t> hash_contents(Arena &arena, uint32_t block, uint64_t hash)
{
	const Geometry &g = arena.geometry;
	std::vector<uint64_t> words(g.block_bytes / sizeof(uint64_t));

	/* So that it is not moved or spilled meanwhile: a hole would read as zeros. */
	if (!arena.try_busy(block))
		return {};
	Where where = arena.where(block);
	ssize_t got = 0;
	if (where == Where::Hot || where == Where::Warm)
		got = pread(arena.memory_fd(), words.data(), g.block_bytes,
			    static_cast<off_t>(arena.offset(block)));
	arena.clear_busy(block);
	if (got != static_cast<ssize_t>(g.block_bytes))
		return {};
	for (uint64_t word : words)
		hash = mix(hash, word);
	return hash;
}

} // namespace

Result<> Recorder::begin(uint64_t connection, const json &id, What what, uint64_t now_ms)
{
	std::lock_guard lock(mutex_);

	while (!seed_)
		if (getrandom(&seed_, sizeof(seed_), 0) != sizeof(seed_))
			return sys_error("getrandom");
	if (!recordings_.try_emplace(connection, Recording{id, what, now_ms, {}}).second)
		return error(EBUSY, "this connection is recording already");
	nr_recordings_++;
	nr_attention_ += what == What::Attention;
	return ok();
}

void Recorder::end(uint64_t connection)
{
	std::lock_guard lock(mutex_);
	auto it = recordings_.find(connection);

	if (it == recordings_.end())
		return;
	const Recording recording = it->second;
	if (recording.what == What::Requests)
		for (const auto &[name, session] : sessions_)
			if (session.in_turn)
				tell_turn(session, connection, recording);
	send(connection, recording, {{"event", "end"}});
	forget(connection);
}

void Recorder::hangup(uint64_t connection)
{
	std::lock_guard lock(mutex_);
	forget(connection);
}

void Recorder::forget(uint64_t connection)
{
	auto node = recordings_.extract(connection);

	if (!node)
		return;
	nr_recordings_--;
	nr_attention_ -= node.mapped().what == What::Attention;
	if (recordings_.empty())
		sessions_.clear();
}

void Recorder::hint(Arena &arena, const cxl_kv_hint &hint, uint64_t now_ms)
{
	std::lock_guard lock(mutex_);
	Name name{arena.options.number, hint.slot};

	if (recordings_.empty())
		return;
	Session &session = sessions_[name];
	session.tokens_per_block = arena.geometry.tokens_per_block;
	switch (hint.kind) {
	case CXL_KV_HINT_SCORE:
		if (attention() && session.scores.size() < max_scores)
			session.scores.push_back(
				{hint.head, hint.block, hint.nr_blocks, hint.score});
		break;
	case CXL_KV_HINT_POSITION:
		if (!session.in_turn)
			begin_turn(session, now_ms);
		move_to(arena, name, session, hint.position);
		break;
	case CXL_KV_HINT_PHASE:
		if (hint.position == CXL_KV_PHASE_DECODE) {
			session.in_prompt = false;
		} else if (!session.in_prompt) {
			end_turn(arena, name, session);
			begin_turn(session, now_ms);
		}
		break;
	case CXL_KV_HINT_WAKE:
		end_turn(arena, name, session);
		begin_turn(session, now_ms);
		break;
	case CXL_KV_HINT_PARK:
		end_turn(arena, name, session);
		break;
	default:
		break;
	}
}

void Recorder::opened(Arena &arena, uint32_t slot, uint64_t now_ms)
{
	std::lock_guard lock(mutex_);
	Name name{arena.options.number, slot};

	if (recordings_.empty())
		return;
	sessions_.erase(name);
	Session &session = sessions_[name];
	session.tokens_per_block = arena.geometry.tokens_per_block;
	begin_turn(session, now_ms);
}

void Recorder::closing(Arena &arena, uint32_t slot)
{
	std::lock_guard lock(mutex_);
	Name name{arena.options.number, slot};
	auto it = sessions_.find(name);

	if (it == sessions_.end())
		return;
	end_turn(arena, name, it->second);
	end_attention(name);
	sessions_.erase(name);
}

void Recorder::detach(uint32_t arena)
{
	std::lock_guard lock(mutex_);

	for (auto it = sessions_.lower_bound({arena, 0});
	     it != sessions_.end() && it->first.first == arena; it = sessions_.erase(it)) {
		if (it->second.in_turn)
			for (const auto &[connection, recording] : recordings_)
				tell_turn(it->second, connection, recording);
		end_attention(it->first);
	}
}

void Recorder::begin_turn(Session &session, uint64_t now_ms)
{
	session.in_turn = session.in_prompt = true;
	session.turn_ms = now_ms;
	session.turn_position = session.prompt_end = session.position;
}

void Recorder::end_turn(Arena &arena, Name name, Session &session)
{
	if (!session.in_turn)
		return;
	read_ids(arena, name.second, session, true);
	for (const auto &[connection, recording] : recordings_)
		tell_turn(session, connection, recording);
	session.in_turn = false;
}

/*
 * Scores that came since the last position are those of the token before this
 * one, whether the engine says where it is before a step or after it. A prompt
 * ends, where no hint says so, with the second step of a single token.
 */
void Recorder::move_to(Arena &arena, Name name, Session &session, uint32_t position)
{
	if (position && !session.scores.empty())
		tell_attention(name, session, position - 1);
	session.scores.clear();
	if (session.in_prompt) {
		bool one_token = position == session.position + 1;
		if (one_token && session.position > session.turn_position)
			session.in_prompt = false;
		else
			session.prompt_end = position;
	}
	session.position = position;
	read_ids(arena, name.second, session, false);
}

/* at_any_cost: a block that cannot be read gets an id that only this session has. */
void Recorder::read_ids(Arena &arena, uint32_t slot, Session &session, bool at_any_cost)
{
	const uint32_t full = session.position / session.tokens_per_block;

	if (session.ids.size() > full)
		session.ids.resize(full);
	while (session.ids.size() < full) {
		const auto at = static_cast<uint32_t>(session.ids.size());
		const uint64_t before = at ? session.ids.back() : mix(seed_, arena.options.key);
		const uint32_t block = arena.geometry.block_index(slot, 0, at);
		auto id = hash_contents(arena, block, before);
		if (!id && !at_any_cost)
			return;
		session.ids.push_back(id.value_or(mix(mix(before, session.turn_ms), block)));
	}
}

void Recorder::tell_turn(const Session &session, uint64_t connection, const Recording &recording)
{
	if (recording.what != What::Requests || !session.prompt_end)
		return;
	json ids = json::array();
	const size_t nr = session.prompt_end / session.tokens_per_block;
	for (size_t i = 0; i < std::min(nr, session.ids.size()); i++)
		ids.push_back(session.ids[i] & id_mask);
	send(connection, recording,
	     {{"event", "request"},
	      {"timestamp", session.turn_ms - std::min(session.turn_ms, recording.begin_ms)},
	      {"input_length", session.prompt_end},
	      {"output_length", session.position - std::min(session.position, session.prompt_end)},
	      {"block_tokens", session.tokens_per_block},
	      {"hash_ids", std::move(ids)}});
}

void Recorder::tell_attention(Name name, Session &session, uint32_t step)
{
	for (auto &[connection, recording] : recordings_) {
		if (recording.what != What::Attention)
			continue;
		if (!recording.session)
			recording.session = name;
		if (recording.session == name)
			send(connection, recording,
			     {{"event", "step"},
			      {"arena", name.first},
			      {"slot", name.second},
			      {"step", step},
			      {"scores", session.scores}});
	}
}

void Recorder::end_attention(Name name)
{
	for (const auto &[connection, recording] : recordings_)
		if (recording.session == name)
			send(connection, recording, {{"event", "end"}});
}

/* A peer that is gone, or does not read, is hung up on; hangup() follows. */
void Recorder::send(uint64_t connection, const Recording &recording, json event)
{
	event["id"] = recording.id;
	send_(connection, event.dump());
}

} // namespace cxlkv
