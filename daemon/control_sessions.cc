/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sessions: who may become active, and how they come back. A wake waits for its
 * turn in the gate, then for room for its full set, and ends at its deadline
 * whatever it waits for.
 */
#include "control.h"

#include "control_line.h"

#include <algorithm>
#include <fmt/format.h>

namespace cxlkv {

using nlohmann::json;

namespace {

/* Until a wake is known to take longer. */
constexpr uint32_t kMinRetryMs = 10;
constexpr char kActiveNeedAll[] = "the active sessions need all memory: park one";

uint64_t bytes_of(const Arena &arena, uint32_t slot, bool cold_only)
{
	const uint32_t first = slot * arena.geometry.blocks_per_slot();
	uint64_t bytes = 0;

	for (uint32_t b = first; b < first + arena.geometry.blocks_per_slot(); b++) {
		const Where where = arena.where(b);
		if (where == Where::Cold ||
		    (!cold_only && (where == Where::Hot || where == Where::Warm)))
			bytes += arena.geometry.block_bytes;
	}
	return bytes;
}

} // namespace

struct Control::Wake {
	std::shared_ptr<ArenaEntry> entry;
	uint32_t slot;
	Answer answer;
	bool answer_later, was_active;
	uint64_t begin_ns, deadline_ns;
};

Control::Control(const Parts &parts, const WakeGate &gate)
    : nr_verdicts(parts.tenants.table().size()), parts_(parts), gate_(gate)
{
}

Control::~Control() = default;

void Control::session_hint(Arena &arena, uint32_t slot, cxl_kv_hint_kind kind)
{
	cxl_kv_hint hint{};

	hint.kind = static_cast<uint8_t>(kind);
	hint.slot = slot;
	parts_.policy.hint(arena, hint);
}

/* ---- open, close, park ---- */

void Control::op_session(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto entry = own_arena(peer, in, answer);
	if (!entry)
		return;
	auto slot = get_u32(in, "slot");
	std::string state = get_text(in, "state");
	if (!slot || *slot >= entry->open_slots.size() ||
	    (state != "open" && state != "close" && state != "touch"))
		return answer.fail(
			EINVAL, "session needs a slot of the arena and state open, close or touch");
	if (state == "open")
		return open_session(entry, *slot, answer);
	if (state == "close")
		return close_session(entry, *slot, answer);
	if (!entry->open_slots[*slot])
		return answer.fail(ENOENT, fmt::format("slot {} is not open", *slot));
	parts_.policy.touch_session(*entry->arena, *slot);
	answer.ok();
}

void Control::busy(const Answer &answer, const char *why, uint32_t retry_ms)
{
	nr_busy++;
	answer.fail(EBUSY, why, {{"retry_ms", retry_ms}});
}

void Control::open_session(const std::shared_ptr<ArenaEntry> &entry, uint32_t slot,
			   const Answer &answer)
{
	const Arena &arena = *entry->arena;

	if (entry->open_slots[slot].exchange(true))
		return answer.fail(EBUSY, fmt::format("slot {} is open already", slot));
	if (uint32_t retry_ms = parts_.policy.admission_retry_ms(arena, slot, 0)) {
		entry->open_slots[slot] = false;
		return busy(answer, kActiveNeedAll, retry_ms);
	}
	/* It begins with its prefill, whose blocks go straight to warm (design.md section 6,
	 * phase). */
	parts_.policy.take_hints();
	parts_.recorder.opened(*entry->arena, slot, monotonic_ns() / 1000000);
	const Where where = parts_.policy.draining(Where::Warm) ? Where::Hot : Where::Warm;
	if (auto placed = parts_.placement.place_slot(*entry->arena, slot, where); !placed) {
		entry->open_slots[slot] = false;
		return answer.fail(placed.error().code, placed.error().what);
	}
	parts_.policy.open_session(arena, slot);
	answer.ok();
}

void Control::close_session(const std::shared_ptr<ArenaEntry> &entry, uint32_t slot,
			    const Answer &answer)
{
	/* What is recorded of the session comes before its blocks go. */
	parts_.policy.take_hints();
	parts_.recorder.closing(*entry->arena, slot);
	Request request{};
	request.kind = Request::Kind::Drop;
	request.arena = entry->arena;
	request.extents = made_blocks(*entry->arena, slot);
	submit(std::move(request), [this, answer, entry, slot](const Outcome &o) {
		if (!o.error) {
			parts_.policy.close_session(*entry->arena, slot);
			entry->open_slots[slot] = false;
		}
		answer.outcome(o);
	});
}

void Control::op_park(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto entry = own_arena(peer, in, answer);
	if (!entry)
		return;
	auto slot = get_u32(in, "slot");
	if (!slot || *slot >= entry->open_slots.size())
		return answer.fail(EINVAL, "park needs a slot of the arena");
	session_hint(*entry->arena, *slot, CXL_KV_HINT_PARK);
	answer.ok();
}

void Control::op_prefetch(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto entry = own_arena(peer, in, answer);
	if (!entry)
		return;
	auto slot = get_u32(in, "slot"), position = get_u32(in, "position"),
	     window = get_u32(in, "window");
	if (!slot || *slot >= entry->open_slots.size() || !position || !window)
		return answer.fail(EINVAL,
				   "prefetch needs a slot of the arena, position and window");
	parts_.policy.prefetch(*entry->arena, *slot, *position, *window);
	answer.ok();
}

/* ---- wake ---- */

void Control::op_wake(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto entry = own_arena(peer, in, answer);
	if (!entry)
		return;
	auto slot = get_u32(in, "slot");
	auto wait = in.find("wait");
	if (!slot || *slot >= entry->open_slots.size() || wait == in.end() || !wait->is_boolean())
		return answer.fail(EINVAL, "wake needs a slot of the arena and wait");
	const Arena &arena = *entry->arena;
	if (uint32_t retry_ms =
		    parts_.policy.admission_retry_ms(arena, *slot, bytes_of(arena, *slot, false)))
		return busy(answer, kActiveNeedAll, retry_ms);
	Wake wake{entry,
		  *slot,
		  answer,
		  wait->get<bool>(),
		  parts_.policy.is_active(arena, *slot),
		  monotonic_ns(),
		  deadline_of(in)};
	{
		std::lock_guard lock(wakes_mutex_);
		const uint64_t id = next_wake_++;
		if (!gate_.enter({id, bytes_of(arena, *slot, true), wake.deadline_ns}))
			return busy(answer, "too many sessions wait to be woken", 1000);
		waiting_wakes_.emplace(id, wake);
	}
	if (!wake.answer_later)
		answer.ok();
	start_wakes();
}

void Control::start_wakes()
{
	std::vector<std::pair<uint64_t, Wake>> ready;

	/* One that may not start after all lets the next one in. */
	for (bool again = true; again;) {
		{
			std::lock_guard lock(wakes_mutex_);
			for (uint64_t id : gate_.start()) {
				auto node = waiting_wakes_.extract(id);
				ready.emplace_back(id, std::move(node.mapped()));
			}
		}
		again = false;
		for (const auto &[id, wake] : ready)
			again |= !start_wake(id, wake);
		ready.clear();
	}
}

bool Control::start_wake(uint64_t id, const Wake &wake)
{
	Arena &arena = *wake.entry->arena;
	const uint64_t bytes = bytes_of(arena, wake.slot, false);

	/* Others became active while it waited for its turn. */
	if (uint32_t retry_ms = parts_.policy.wake_session(arena, wake.slot, bytes)) {
		end_wake(id);
		refuse_wake(wake, kActiveNeedAll, retry_ms);
		return false;
	}
	parts_.policy.kick();
	Request request{};
	request.kind = Request::Kind::Fetch;
	request.waking = true;
	request.arena = wake.entry->arena;
	request.extents = made_blocks(arena, wake.slot);
	request.deadline_ns = wake.deadline_ns;
	const uint64_t turn_ns = monotonic_ns() - wake.begin_ns;
	submit(std::move(request), [this, id, wake, turn_ns](const Outcome &o) {
		end_wake(id);
		if (!o.error)
			wakes_ns.add(monotonic_ns() - wake.begin_ns);
		/* Parked again, it holds nothing that another may need. */
		if (o.error == EBUSY && !wake.was_active)
			session_hint(*wake.entry->arena, wake.slot, CXL_KV_HINT_PARK);
		if (o.error == EBUSY && wake.deadline_ns && monotonic_ns() >= wake.deadline_ns)
			refuse_wake(wake, "no room in memory: recompute, or ask again",
				    retry_after_wakes());
		else if (wake.answer_later && !o.error)
			wake.answer.ok({{"waited_ns", std::to_string(turn_ns + o.waited_ns)},
					{"transfer_ns", std::to_string(o.restored_ns)}});
		else if (wake.answer_later)
			wake.answer.outcome(o);
		start_wakes();
	});
	return true;
}

void Control::end_wake(uint64_t id)
{
	std::lock_guard lock(wakes_mutex_);
	gate_.end(id);
}

void Control::refuse_wake(const Wake &wake, const char *why, uint32_t retry_ms)
{
	if (wake.answer_later)
		busy(wake.answer, why, retry_ms);
	else
		nr_busy++;
}

int Control::expire_wakes(int max_ms)
{
	std::vector<Wake> late;
	uint64_t next_ns;
	const uint64_t now = monotonic_ns();
	{
		std::lock_guard lock(wakes_mutex_);
		for (uint64_t id : gate_.expire(now))
			late.push_back(std::move(waiting_wakes_.extract(id).mapped()));
		next_ns = gate_.next_deadline_ns();
	}
	for (const Wake &wake : late)
		refuse_wake(wake, "other sessions are being woken: recompute, or ask again",
			    retry_after_wakes());
	if (!next_ns)
		return max_ms;
	return static_cast<int>(std::min<uint64_t>((next_ns - std::min(next_ns, now)) / 1000000 + 1,
						   static_cast<uint64_t>(max_ms)));
}

/* One wake's time for each that would be in front. */
uint32_t Control::retry_after_wakes() const
{
	const uint64_t one_ms = wakes_ns.permille(500) / 1000000;

	return static_cast<uint32_t>(
		std::clamp<uint64_t>(one_ms * (nr_waiting_wakes() + 1), kMinRetryMs, 1000));
}

size_t Control::nr_waiting_wakes() const
{
	std::lock_guard lock(wakes_mutex_);
	return gate_.nr_waiting();
}

} // namespace cxlkv
