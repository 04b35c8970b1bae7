/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/workload.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
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

Result<Gaps> Gaps::read(const std::string &file)
{
	std::ifstream in(file);
	Gaps gaps;

	if (!in)
		return sys_error(file);
	for (std::string line; std::getline(in, line);) {
		if (line.empty() || line[0] == '#')
			continue;
		char *end = nullptr;
		const double ms = strtod(line.c_str(), &end);
		const double last = gaps.quantiles_.empty() ? 0 : gaps.quantiles_.back();
		if (*end || !(ms >= last))
			return error(EINVAL, file + ": not a list of ascending times: " + line);
		gaps.quantiles_.push_back(ms);
	}
	if (gaps.quantiles_.size() < 2)
		return error(EINVAL, file + ": less than two quantiles");
	return gaps;
}

double Gaps::ms(double u) const
{
	const double at = u * static_cast<double>(quantiles_.size() - 1);
	const auto below = std::min(static_cast<size_t>(at), quantiles_.size() - 2);

	return std::lerp(quantiles_[below], quantiles_[below + 1], at - static_cast<double>(below));
}

Schedule::Schedule(const std::vector<Turn> &turns, const WorkloadOptions &options, const Gaps &gaps,
		   double scale)
    : turns_(options.conversations), gaps_(gaps), scale_(scale), random_(options.seed)
{
	for (const Turn &turn : turns)
		turns_[turn.conversation].push_back(turn);
	for (uint32_t c = 0; c < options.conversations; c++)
		if (!turns_[c].empty())
			due_.emplace(gap_ms(), c);
}

/* The last percent are nights and weekends: nobody waits for those. */
double Schedule::gap_ms()
{
	constexpr double waited_for = 0.99;
	const double u = static_cast<double>(random_() >> 11) / 9007199254740992.0;

	return gaps_.ms(u * waited_for) * scale_;
}

Turn Schedule::take()
{
	std::deque<Turn> &turns = turns_[due_.begin()->second];
	Turn turn = turns.front();

	turns.pop_front();
	due_.erase(due_.begin());
	return turn;
}

void Schedule::ended(const Turn &turn, double now_ms)
{
	if (!turns_[turn.conversation].empty())
		due_.emplace(now_ms + gap_ms(), turn.conversation);
}

} // namespace cxlkv::engine
