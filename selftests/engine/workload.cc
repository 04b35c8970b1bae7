/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/workload.h"

#include <fmt/format.h>
#include <random>
#include <utility>

namespace cxlkv::engine {

namespace {

/* Not the standard's distributions: they differ between libraries, this must not. */
uint64_t below(std::mt19937_64 &random, uint64_t n)
{
	return random() % n;
}

std::string check(const WorkloadOptions &o, size_t text_size)
{
	if (o.conversations < 1 || o.conversations > 65536)
		return fmt::format("{} conversations are not within 1..65536", o.conversations);
	if (o.rounds < 1 || o.reply < 1)
		return "at least one round and one token of reply are needed";
	if (o.context / 2 / o.rounds <= o.reply)
		return fmt::format(
			"{} rounds of more than {} tokens do not fit half a context of {}",
			o.rounds, o.reply, o.context);
	if (text_size < o.context)
		return fmt::format("the text has {} bytes, less than a context of {}", text_size,
				   o.context);
	return {};
}

} // namespace

Result<std::vector<Turn>> plan_turns(const WorkloadOptions &o, size_t text_size)
{
	if (std::string what = check(o, text_size); !what.empty())
		return error(EINVAL, what);

	std::mt19937_64 random(o.seed);
	std::vector<uint32_t> length(o.conversations), order(o.conversations);
	for (uint32_t c = 0; c < o.conversations; c++) {
		/* The first one is as long as allowed, whatever the seed. */
		length[c] = c ? o.context - static_cast<uint32_t>(below(random, o.context / 2 + 1))
			      : o.context;
		order[c] = c;
	}
	std::vector<Turn> turns;
	for (uint32_t round = 0; round < o.rounds; round++) {
		for (uint32_t i = o.conversations - 1; i > 0; i--)
			std::swap(order[i], order[below(random, i + 1)]);
		for (uint32_t c : order) {
			const uint32_t share = length[c] / o.rounds;
			const uint32_t text = share - o.reply;
			turns.push_back({c, below(random, text_size - text + 1), text, o.reply});
		}
	}
	return turns;
}

} // namespace cxlkv::engine
