/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/workload.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
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
	if (text_size < o.context || text_size / std::max(o.prompts, 1u) < o.prompt_tokens)
		return fmt::format("the text has {} bytes, less than a context of {} or {} prompts "
				   "of {} need",
				   text_size, o.context, o.prompts, o.prompt_tokens);
	return {};
}

/* Text and reply of a turn of a conversation that is to reach length tokens. */
Turn plan_turn(const WorkloadOptions &o, uint32_t conversation, uint32_t length, const Beat &beat)
{
	const uint32_t divided = length - o.rounds * (o.reply + 1);
	Turn turn;

	turn.conversation = conversation;
	turn.text_bytes = 1 + static_cast<uint32_t>(beat.share * divided);
	turn.reply = o.reply;
	turn.gap_ms = beat.gap_ms;
	return turn;
}

/* The beginning of its text is that of the others with the same prompt. */
void share_prompt(const WorkloadOptions &o, Turn *turn)
{
	if (!o.prompts)
		return;
	turn->prompt_offset = size_t{turn->conversation % o.prompts} * o.prompt_tokens;
	turn->prompt_bytes = std::min(o.prompt_tokens, turn->text_bytes - 1);
	turn->text_bytes -= turn->prompt_bytes;
}

} // namespace

Result<std::vector<Turn>> plan_turns(const WorkloadOptions &o, size_t text_size, const Pace &pace)
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
			Turn turn = plan_turn(o, c, length[c], pace[c][round]);
			if (!round)
				share_prompt(o, &turn);
			turn.text_offset = below(random, text_size - turn.text_bytes + 1);
			turns.push_back(turn);
		}
	}
	return turns;
}

Pace even_pace(const WorkloadOptions &o)
{
	return Pace(o.conversations, std::vector<Beat>(o.rounds, {1.0 / o.rounds, 0}));
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

Pace drawn_pace(const WorkloadOptions &o, const Gaps &gaps)
{
	/* The last percent are nights and weekends: nobody waits for those. */
	constexpr double waited_for = 0.99;
	std::mt19937_64 random(o.seed);
	Pace pace = even_pace(o);

	for (std::vector<Beat> &beats : pace)
		for (Beat &beat : beats)
			beat.gap_ms = gaps.ms(waited_for * static_cast<double>(random() >> 11) /
					      9007199254740992.0);
	return pace;
}

Schedule::Schedule(const std::vector<Turn> &turns, const WorkloadOptions &options, double scale)
    : turns_(options.conversations), scale_(scale)
{
	for (const Turn &turn : turns)
		turns_[turn.conversation].push_back(turn);
	for (uint32_t c = 0; c < options.conversations; c++)
		if (!turns_[c].empty())
			due_.emplace(turns_[c].front().gap_ms * scale_, c);
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
	const std::deque<Turn> &left = turns_[turn.conversation];

	if (!left.empty())
		due_.emplace(now_ms + left.front().gap_ms * scale_, turn.conversation);
}

} // namespace cxlkv::engine
