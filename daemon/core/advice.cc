/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/advice.h"

#include <algorithm>
#include <cerrno>
#include <optional>

namespace cxlkv {

namespace {

constexpr size_t kMaxBlocks = 1 << 20, kMaxWanted = 4096, kMaxOpen = 256;
/* The clock of the scores: about what a decode step takes. */
constexpr uint64_t kStepNs = 20'000'000;
constexpr double kTauSteps = 1000;
/* A block has to be so much more worth than the one that makes room for it. */
constexpr double kMargin = 0.1;
/* Who was not used for so long is wanted no more. */
constexpr double kUnwanted = 0.5;

} // namespace

uint32_t AdviceBook::age(const Block &block, uint64_t now_ns)
{
	const uint64_t steps = (now_ns - std::min(now_ns, block.used_ns)) / kStepNs;

	return static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX));
}

double AdviceBook::leaves_first(const Block &block, uint64_t now_ns) const
{
	const uint32_t steps = age(block, now_ns);
	const double ema = static_cast<double>(block.ema * ema_.decay(steps));

	return eviction_priority(ema, recency_decay(steps, kTauSteps));
}

void AdviceBook::settle(const ObjectKey &key, bool here)
{
	Block &block = blocks_.at(key);

	if (block.here == here)
		return;
	block.here = here;
	stats_.nr_blocks += here ? 1 : -1;
	stats_.bytes += here ? block.bytes : -uint64_t{block.bytes};
	if (here && block.wanted)
		std::erase(wanted_, key);
	block.wanted = false;
}

void AdviceBook::forget_if_idle(const ObjectKey &key)
{
	auto it = blocks_.find(key);

	if (!it->second.here && !it->second.wanted && !it->second.open)
		blocks_.erase(it);
}

int AdviceBook::report(const ObjectKey &key, uint32_t bytes, bool here, uint64_t now_ns)
{
	auto it = blocks_.find(key);

	if (it == blocks_.end()) {
		if (!here)
			return 0;
		if (blocks_.size() >= kMaxBlocks)
			return ENOSPC;
		it = blocks_.emplace(key, Block{}).first;
		it->second.bytes = bytes;
		it->second.used_ns = now_ns;
	}
	settle(key, here);
	forget_if_idle(key);
	return 0;
}

void AdviceBook::used(const ObjectKey &key, uint32_t bytes, float score, uint64_t now_ns)
{
	auto [it, is_new] = blocks_.try_emplace(key);
	Block &block = it->second;

	block.ema = ema_.update(block.ema, age(block, now_ns), score);
	block.used_ns = now_ns;
	if (!is_new)
		return;
	block.bytes = bytes;
	block.wanted = true;
	wanted_.push_back(key);
	if (wanted_.size() <= kMaxWanted)
		return;
	const ObjectKey oldest = wanted_.front();
	wanted_.pop_front();
	blocks_.at(oldest).wanted = false;
	forget_if_idle(oldest);
}

/* Those that may be advised about; here: who is to leave first, else who is wanted most. What was
 * used within a step is told apart by its score. */
std::vector<AdviceBook::Entry *> AdviceBook::ranked(bool here, uint64_t now_ns)
{
	using Rank = std::pair<double, float>;
	std::vector<std::pair<Rank, Entry *>> order;
	auto add = [&](Entry &entry) {
		const Block &block = entry.second;
		if (block.here == here && !block.open && block.quiet_until_ns <= now_ns)
			order.emplace_back(Rank(leaves_first(block, now_ns), -block.ema), &entry);
	};

	if (here)
		for (Entry &entry : blocks_)
			add(entry);
	else
		for (const ObjectKey &key : wanted_)
			add(*blocks_.find(key));
	std::ranges::stable_sort(order, {}, [](const auto &entry) { return entry.first; });
	if (here)
		std::ranges::reverse(order);
	std::vector<Entry *> out;
	for (auto &[rank, entry] : order)
		out.push_back(entry);
	return out;
}

Advice AdviceBook::advise(Entry &entry, bool promote, uint64_t now_ns)
{
	Block &block = entry.second;

	block.open = next_id_++;
	open_[block.open] = {entry.first, promote, block.bytes, now_ns + options_.ack_ns};
	(promote ? coming_bytes_ : leaving_bytes_) += block.bytes;
	(promote ? stats_.nr_promotes : stats_.nr_demotes)++;
	return {block.open, entry.first, promote};
}

std::vector<Advice> AdviceBook::take(size_t max, uint64_t now_ns, const CanCome &can_come)
{
	std::vector<Advice> out;
	std::optional<std::vector<Entry *>> leave; /* ranked when somebody has to */
	size_t next = 0;
	auto room = [&] { return out.size() < max && open_.size() < kMaxOpen; };
	auto next_to_leave = [&]() -> Entry * {
		if (!leave)
			leave = ranked(true, now_ns);
		return next < leave->size() ? (*leave)[next] : nullptr;
	};
	auto leaves = [&](Entry &entry) {
		out.push_back(advise(entry, false, now_ns));
		next++;
	};

	if (planned_bytes() > limit(options_.high_permil))
		while (room() && planned_bytes() > limit(options_.low_permil) && next_to_leave())
			leaves(*next_to_leave());
	for (Entry *entry : ranked(false, now_ns)) {
		const double worth = leaves_first(entry->second, now_ns);
		if (!room() || worth > kUnwanted)
			break;
		if (!can_come(entry->first))
			continue;
		if (planned_bytes() + entry->second.bytes <= limit(options_.high_permil))
			out.push_back(advise(*entry, true, now_ns));
		else if (Entry *first = next_to_leave();
			 first && leaves_first(first->second, now_ns) > worth + kMargin)
			leaves(*first);
		else
			break;
	}
	return out;
}

bool AdviceBook::finish(uint64_t id, bool done, uint64_t now_ns)
{
	auto node = open_.extract(id);

	if (!node)
		return false;
	const Open &open = node.mapped();
	Block &block = blocks_.at(open.key);
	block.open = 0;
	(open.promote ? coming_bytes_ : leaving_bytes_) -= open.bytes;
	if (done)
		settle(open.key, open.promote);
	else
		block.quiet_until_ns = now_ns + options_.ack_ns;
	forget_if_idle(open.key);
	return true;
}

bool AdviceBook::end(uint64_t id, bool done, uint64_t now_ns)
{
	if (!finish(id, done, now_ns))
		return false;
	(done ? stats_.nr_done : stats_.nr_refused)++;
	return true;
}

void AdviceBook::expire(uint64_t now_ns)
{
	while (!open_.empty() && open_.begin()->second.deadline_ns <= now_ns) {
		finish(open_.begin()->first, false, now_ns);
		stats_.nr_expired++;
	}
}

uint64_t AdviceBook::next_expiry_ns() const
{
	return open_.empty() ? UINT64_MAX : open_.begin()->second.deadline_ns;
}

} // namespace cxlkv
