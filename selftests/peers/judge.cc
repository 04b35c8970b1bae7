/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "peers/judge.h"

#include <algorithm>

namespace cxlkv::peers {

namespace {

constexpr double found_share = 0.9;

} // namespace

Judge::Judge(uint32_t nr_intervals, std::vector<Place> places)
    : nr_looks_(nr_intervals * looks), places_(std::move(places)), reads_(places_.size()),
      last_(places_.size()), is_hot_(places_.size())
{
}

void Judge::hot_set(const std::vector<uint32_t> &pages, bool jumped)
{
	std::fill(is_hot_.begin(), is_hot_.end(), false);
	for (uint32_t page : pages)
		is_hot_[page] = true;
	nr_hot_set_ = pages.size();
	if (!jumped)
		return;
	jumped_ = look_;
	verdict_.converged.emplace_back();
}

void Judge::look(const std::vector<Place> &places)
{
	look_++;
	for (uint32_t page = 0; page < places_.size(); page++) {
		const Place before = places_[page], now = places[page];
		if (before != now && before != Place::Nowhere && now != Place::Nowhere)
			move(page, now == Place::Hot);
		/* A page that is on its way has no place for the moment. */
		if (now != Place::Nowhere)
			places_[page] = now;
		if (reads_[page])
			count_reads(page, places_[page]);
		if (is_hot_[page])
			judge_demotion(page);
	}
	if (look_ > nr_looks_ / 2 && nr_hot_set_) {
		recall_sum_ += recall();
		nr_recalls_++;
	}
	converge();
}

void Judge::move(uint32_t page, bool up)
{
	Last &last = last_[page];

	(up ? verdict_.nr_promoted : verdict_.nr_demoted)++;
	verdict_.nr_promoted_of_hot_set += up && is_hot_[page];
	if (last.look && last.up != up && look_ - last.look <= soon) {
		verdict_.nr_ping_pong++;
		judge_demotion(page);
	}
	last = {look_, up, false};
}

void Judge::count_reads(uint32_t page, Place place)
{
	const bool hot = place == Place::Hot, late = look_ > nr_looks_ / 2;
	Last &last = last_[page];

	verdict_.nr_reads += reads_[page];
	verdict_.nr_hot_reads += hot ? reads_[page] : 0;
	if (late) {
		verdict_.nr_late_reads += reads_[page];
		verdict_.nr_late_hot_reads += hot ? reads_[page] : 0;
	}
	reads_[page] = 0;
	/* What was read before its move, since the last look, says nothing about the move. */
	if (!last.look || last.judged || last.look == look_)
		return;
	if (last.up) {
		nr_read_promoted_++;
		last.judged = true;
	}
}

/* It was wanted again. */
void Judge::judge_demotion(uint32_t page)
{
	Last &last = last_[page];

	if (!last.look || last.up || last.judged || look_ - last.look > soon)
		return;
	nr_wrongly_demoted_++;
	last.judged = true;
}

double Judge::recall() const
{
	uint64_t found = 0;

	for (uint32_t page = 0; page < places_.size(); page++)
		found += is_hot_[page] && places_[page] == Place::Hot;
	return static_cast<double>(found) / static_cast<double>(nr_hot_set_);
}

void Judge::converge()
{
	if (!jumped_ || recall() < found_share)
		return;
	verdict_.converged.back() = static_cast<double>(look_ - *jumped_) / looks;
	jumped_.reset();
}

Verdict Judge::verdict() const
{
	Verdict verdict = verdict_;

	verdict.nr_useful = nr_read_promoted_ + verdict.nr_demoted - nr_wrongly_demoted_;
	verdict.recall = nr_recalls_ ? recall_sum_ / nr_recalls_ : 0;
	return verdict;
}

} // namespace cxlkv::peers
