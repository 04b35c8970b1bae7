/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The op `decide`: what the client says of its KV, and what is known here of the tiers. */
#include "control.h"

#include "bandwidths.h"
#include "control_line.h"
#include "core/decide.h"

#include <cmath>

namespace cxlkv {

using nlohmann::json;

namespace {

struct TierBytes {
	uint64_t hot = 0, warm = 0, cold = 0;
};

TierBytes bytes_of_slot(const Arena &arena, uint32_t slot)
{
	const uint32_t first = slot * arena.geometry.blocks_per_slot();
	TierBytes sum;

	for (uint32_t b = first; b < first + arena.geometry.blocks_per_slot(); b++) {
		const Where where = arena.where(b);
		if (where == Where::Hot)
			sum.hot += arena.geometry.block_bytes;
		else if (where == Where::Warm)
			sum.warm += arena.geometry.block_bytes;
		else if (where == Where::Cold)
			sum.cold += arena.geometry.block_bytes;
	}
	return sum;
}

bool get_number(const json &in, const char *name, double low, double high, double &out)
{
	auto it = in.find(name);
	if (it == in.end())
		return true; /* as it is */
	if (!it->is_number())
		return false;
	out = it->get<double>();
	return out >= low && out <= high;
}

bool get_flag(const json &in, const char *name)
{
	auto it = in.find(name);
	return it != in.end() && it->is_boolean() && it->get<bool>();
}

const char *name_of(Verdict verdict)
{
	switch (verdict) {
	case Verdict::Fetch:
		return "fetch";
	case Verdict::Recompute:
		return "recompute";
	case Verdict::Split:
		return "split";
	case Verdict::Drop:
		break;
	}
	return "drop";
}

std::string ns_text(double seconds)
{
	return std::isfinite(seconds) ? std::to_string(static_cast<uint64_t>(seconds * 1e9))
				      : std::to_string(UINT64_MAX);
}

} // namespace

void Control::op_decide(const Peer &peer, const json &in, Answer answer, Files &)
{
	TierBytes bytes{get_u64_text(in, "hot_bytes").value_or(0),
			get_u64_text(in, "warm_bytes").value_or(0),
			get_u64_text(in, "cold_bytes").value_or(0)};
	if (auto slot = get_u32(in, "slot")) {
		auto entry = own_arena(peer, in, answer);
		if (!entry)
			return;
		if (*slot >= entry->open_slots.size())
			return answer.fail(EINVAL, "decide: the arena has no such slot");
		bytes = bytes_of_slot(*entry->arena, *slot);
	}
	DecideInput question;
	question.latency = get_flag(in, "latency");
	question.can_split = get_flag(in, "split");
	if (!get_number(in, "tokens", 0, 1e12, question.tokens) ||
	    !get_number(in, "prefill_tokens_per_s", 1e-3, 1e15, question.prefill_tokens_per_s) ||
	    !get_number(in, "return_probability", 0, 1, question.return_probability) ||
	    !get_number(in, "margin", 1, 1e6, question.margin))
		return answer.fail(EINVAL, "decide: tokens, prefill_tokens_per_s above 0, "
					   "return_probability from 0 to 1, margin from 1 to 1e6");

	question.ask_s = static_cast<double>(get_u64_text(in, "wake_ns").value_or(0)) / 1e9;
	const FaultStats stats = parts_.faults.stats();
	const uint64_t queued = stats.coming_bytes + stats.wanted.bytes + stats.wanted.waking_bytes;
	const Bandwidths &known = parts_.bandwidths;
	if (question.return_probability < 1) {
		/* Until it comes back it is cold, and what is not yet has to be written. */
		question.keep_s =
			known.part(Bandwidths::ToCold, bytes.hot + bytes.warm, 0).seconds();
		bytes = {0, 0, bytes.hot + bytes.warm + bytes.cold};
	}
	question.parts = {known.part(Bandwidths::WarmToHot, bytes.warm, 0),
			  known.part(Bandwidths::FromCold, bytes.cold, queued)};
	const Decision d = decide(question);
	nr_verdicts[clients_[peer.connection].tenant][static_cast<size_t>(d.verdict)]++;
	answer.ok({{"verdict", name_of(d.verdict)},
		   {"split_tokens", std::to_string(static_cast<uint64_t>(d.split_tokens))},
		   {"fetch_ns", ns_text(d.fetch_s)},
		   {"recompute_ns", ns_text(d.recompute_s)},
		   {"chosen_ns", ns_text(d.chosen_s)}});
}

} // namespace cxlkv
