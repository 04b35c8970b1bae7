/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Control socket: tiers that engines have for themselves, and the advice about them. */
#include "control.h"

#include "control_line.h"

#include <fmt/format.h>

namespace cxlkv {

using nlohmann::json;

namespace {

/* So that the answer fits a line. */
constexpr uint32_t kMaxAdvice = 256;

std::string hex(const ObjectKey &key)
{
	std::string text;

	for (const std::byte byte : std::as_bytes(std::span(key.key)))
		text += fmt::format("{:02x}", byte);
	return text;
}

/* Absent: as it is by default. */
bool get_permil(const json &in, const char *name, uint32_t *permil)
{
	if (!in.contains(name))
		return true;
	auto value = get_u32(in, name);
	*permil = value.value_or(0);
	return *permil >= 1 && *permil <= 1000;
}

} // namespace

void Control::op_tier_open(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto number = get_u32(in, "namespace");
	auto bytes = get_u64_text(in, "bytes");
	auto ack_ms = get_u32(in, "ack_ms");
	AdviceOptions options;

	if (!number || !bytes.value_or(0) || !get_permil(in, "high_permil", &options.high_permil) ||
	    !get_permil(in, "low_permil", &options.low_permil) ||
	    options.low_permil > options.high_permil || (ack_ms && !*ack_ms))
		return answer.fail(EINVAL, "tier_open needs a namespace, bytes as a decimal string "
					   "above 0; low_permil and high_permil in order, from 1 "
					   "to 1000; ack_ms above 0");
	options.bytes = *bytes;
	if (ack_ms)
		options.ack_ns = uint64_t{*ack_ms} * 1000000;
	parts_.objects.post([this, peer, answer, options, number = *number] {
		parts_.objects.open_tier(peer.connection, number, options, answered(answer));
	});
}

void Control::op_tier_close(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto number = get_u32(in, "namespace");

	if (!number)
		return answer.fail(EINVAL, "tier_close needs the namespace's number");
	parts_.objects.post([this, peer, answer, number = *number] {
		parts_.objects.close_tier(peer.connection, number, answered(answer));
	});
}

void Control::op_advice(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto number = get_u32(in, "namespace");
	auto max = get_u32(in, "max");
	const uint64_t until_ns = deadline_of(in);

	if (!number || !max.value_or(0))
		return answer.fail(EINVAL, "advice needs the namespace's number and max above 0");
	auto done = [answer](const Result<std::vector<Advice>> &given) {
		if (!given)
			return answer.fail(given.error().code, given.error().what);
		json list = json::array();
		for (const Advice &advice : *given)
			list.push_back({std::to_string(advice.id),
					advice.promote ? "promote" : "demote", hex(advice.key),
					advice.key.group});
		answer.ok({{"advice", list}});
	};
	parts_.objects.post([this, peer, until_ns, done, number = *number,
			     max = std::min(*max, kMaxAdvice)] {
		parts_.objects.wait_for_advice(peer.connection, number, max, until_ns, done);
	});
}

void Control::op_tier_stats(const Peer &peer, const json &in, Answer answer, Files &)
{
	auto number = get_u32(in, "namespace");

	if (!number)
		return answer.fail(EINVAL, "tier_stats needs the namespace's number");
	parts_.objects.post([this, peer, answer, number = *number] {
		auto stats = parts_.objects.tier_stats(peer.connection, number);
		if (!stats)
			return answer.fail(ENOENT, "no tier is open in this namespace");
		answer.ok({{"bytes", std::to_string(stats->bytes)},
			   {"blocks", std::to_string(stats->nr_blocks)},
			   {"promotes", std::to_string(stats->nr_promotes)},
			   {"demotes", std::to_string(stats->nr_demotes)},
			   {"done", std::to_string(stats->nr_done)},
			   {"refused", std::to_string(stats->nr_refused)},
			   {"expired", std::to_string(stats->nr_expired)}});
	});
}

} // namespace cxlkv
