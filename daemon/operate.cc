/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations of the control socket that act on the host's tiers or on arenas of
 * others: for root and for the daemon's own user.
 */
#include "control.h"
#include "control_line.h"

#include <unistd.h>

namespace cxlkv {

using nlohmann::json;

namespace {

bool may_operate(const Peer &peer, const Answer &answer)
{
	if (peer.uid == 0 || peer.uid == geteuid())
		return true;
	answer.fail(EPERM, "only root and the daemon's own user may do that");
	return false;
}

} // namespace

void Control::op_pin(const Peer &peer, const json &in, Answer answer, Files &)
{
	if (!may_operate(peer, answer))
		return;
	auto number = get_u32(in, "arena");
	auto entry = number ? parts_.arenas.find(*number) : nullptr;
	if (!entry)
		return answer.fail(ENOENT, "no such arena; `cxl-kv list` shows them");

	const Geometry &geometry = entry->arena->geometry;
	const uint32_t nr_heads = geometry.nr_heads();
	const uint32_t per_head = geometry.blocks_per_head();
	auto slot = get_u32(in, "slot"), priority = get_u32(in, "priority");
	auto head = get_u32(in, "head");
	const uint32_t block = get_u32(in, "block").value_or(0);
	if (!slot || *slot >= geometry.nr_slots)
		return answer.fail(EINVAL,
				   fmt::format("slot has to be below {}", geometry.nr_slots));
	if (in.contains("head") && (!head || *head >= nr_heads))
		return answer.fail(EINVAL, fmt::format("head has to be below {}", nr_heads));
	if (!priority || *priority > CXL_KV_MAX_PRIORITY)
		return answer.fail(EINVAL,
				   fmt::format("priority has to be 0 to {}", CXL_KV_MAX_PRIORITY));
	if (block >= per_head)
		return answer.fail(EINVAL, fmt::format("block has to be below {}", per_head));
	const uint32_t nr_blocks = get_u32(in, "nr_blocks").value_or(per_head - block);
	if (!nr_blocks || nr_blocks > per_head - block)
		return answer.fail(EINVAL, fmt::format("nr_blocks has to be 1 to {} from block {}",
						       per_head - block, block));

	cxl_kv_hint hint{};
	hint.kind = CXL_KV_HINT_PIN;
	hint.slot = *slot;
	hint.block = block;
	hint.nr_blocks = nr_blocks;
	hint.priority = static_cast<uint8_t>(*priority);
	hint.lifetime_ms = get_u32(in, "lifetime_ms").value_or(0);
	const uint32_t first = head.value_or(0), end = head ? *head + 1 : nr_heads;
	for (hint.head = first; hint.head < end; hint.head++)
		parts_.policy.hint(*entry->arena, hint);
	answer.ok({{"blocks", uint64_t{end - first} * nr_blocks}});
}

void Control::op_drain(const Peer &peer, const json &in, Answer answer, Files &)
{
	if (!may_operate(peer, answer))
		return;
	std::string tier = get_text(in, "tier");
	auto on = in.find("on");
	if ((tier != "warm" && tier != "cold") || on == in.end() || !on->is_boolean())
		return answer.fail(EINVAL, "drain needs tier, warm or cold, and on");
	if (tier == "warm" && !parts_.has_warm)
		return answer.fail(ENODEV, "there is no warm tier: [warm] has no node");
	parts_.policy.drain(tier == "warm" ? Where::Warm : Where::Cold, on->get<bool>());
	answer.ok();
}

void Control::op_tune(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto settings = in.find("set");
	json none = json::object();

	if (settings != in.end() && !settings->is_object())
		return answer.fail(EINVAL, "set is an object of keys and their values");
	if (settings != in.end() && !may_operate(peer, answer))
		return;
	auto tuned = tune_(settings == in.end() ? none : *settings);
	if (!tuned)
		return answer.fail(tuned.error().code, tuned.error().what);
	answer.ok(std::move(*tuned));
}

/* Events follow the answer, with its id, until record_end or until the connection ends. */
void Control::op_record(const Peer &peer, const json &in, Answer answer, Files &)
{
	std::string what = get_text(in, "what");

	if (!may_operate(peer, answer))
		return;
	if (what != "requests" && what != "attention")
		return answer.fail(EINVAL, "record needs what: requests or attention");
	auto begun = parts_.recorder.begin(peer.connection, answer.id,
					   what == "requests" ? Recorder::What::Requests
							      : Recorder::What::Attention,
					   monotonic_ns() / 1000000);
	begun ? answer.ok() : answer.fail(begun.error().code, begun.error().what);
}

void Control::op_record_end(const Peer &peer, const json &, Answer answer, Files &)
{
	parts_.policy.take_hints();
	parts_.recorder.end(peer.connection);
	answer.ok();
}

} // namespace cxlkv
