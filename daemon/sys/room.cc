/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Admission and deadlines. What an admitted job then does: room_jobs.cc. */
#include "sys/room.h"

#include <algorithm>

namespace cxlkv {

Room::Room(Ledger &ledger, Spiller &spiller, Restorer &restorer, SpillStore &store,
	   const FaultServerOptions &options, std::function<uint64_t(const uint32_t *)> used,
	   std::function<void(JobPtr)> on_done)
    : ledger_(ledger), spiller_(spiller), restorer_(restorer), store_(store), options_(options),
      limit_bytes_(options.hot_limit_bytes), used_(std::move(used)), on_done_(std::move(on_done))
{
}

bool Room::needs_room(Request::Kind kind, BlockState state)
{
	if (kind == Request::Kind::Make)
		return state == BlockState::Empty || state == BlockState::Lost;
	return kind != Request::Kind::Drop && kind != Request::Kind::Forget &&
	       state == BlockState::Cold;
}

/* Bytes the job would bring into memory; fails it where a block cannot be had at all. */
uint64_t Room::need(Job &job) const
{
	const ServedArena &served = *job.served;
	uint64_t nr = 0;

	for (const Extent &extent : job.request.extents) {
		for (uint32_t block = extent.first; block < extent.first + extent.nr; block++) {
			BlockState state = served.state(block);
			nr += needs_room(job.request.kind, state);
			if (job.request.kind == Request::Kind::Drop && served.arena().leased(block))
				job.fail(EBUSY, block);
			if (job.request.kind != Request::Kind::Fetch)
				continue;
			if (state == BlockState::Lost)
				job.fail(EIO, block);
			if (state == BlockState::Empty)
				job.fail(ENODATA, block);
		}
	}
	return nr * served.block_bytes();
}

bool Room::fits(uint64_t bytes) const
{
	uint64_t limit = limit_bytes_;

	return !bytes || !limit || used_(nullptr) + bytes <= limit;
}

bool Room::fits_quota(const ServedArena &served, uint64_t bytes) const
{
	const uint64_t limit = served.arena().tenant_limit_bytes;
	const uint32_t tenant = served.arena().tenant;

	return !bytes || limit == UINT64_MAX || used_(&tenant) + bytes <= limit;
}

/* Another job of the tenant waits, or one of anybody's that only all of memory keeps waiting; what
 * is in use goes before what is being woken. */
bool Room::must_wait(const Request &request, const ServedArena &served) const
{
	return std::ranges::any_of(waiting_, [&](const Waiting &waiting) {
		const ServedArena &other = *waiting.job->served;
		return (request.waking || !waiting.job->request.waking) &&
		       (other.arena().tenant == served.arena().tenant ||
			fits_quota(other, waiting.bytes));
	});
}

void Room::enqueue(JobPtr job)
{
	uint64_t bytes = need(*job);
	bool waits = job->request.kind == Request::Kind::Make ||
		     job->request.kind == Request::Kind::Fetch;
	const ServedArena &served = *job->served;
	uint64_t limit = limit_bytes_;
	bool hopeless = (limit && bytes > limit) || bytes > served.arena().tenant_limit_bytes;

	if (job->outcome.error) {
		on_done_(job);
	} else if (!bytes ||
		   (fits(bytes) && fits_quota(served, bytes) && !must_wait(job->request, served))) {
		admit(job);
	} else if (waits && !hopeless && !job->expired(now_ns())) {
		waiting_.push_back({std::move(job), bytes});
		if (want_room_)
			want_room_();
	} else {
		job->fail(EBUSY, job->block());
		ledger_.stats.nr_no_room++;
		on_done_(job);
	}
}

/* Reserves the full set. From here on the blocks are on their way, whoever else wants them. */
void Room::admit(JobPtr job)
{
	ServedArena &served = *job->served;

	job->admitted_ns = now_ns();
	for (const Extent &extent : job->request.extents) {
		for (uint32_t block = extent.first; block < extent.first + extent.nr; block++) {
			if (job->request.kind == Request::Kind::Fetch &&
			    served.state(block) == BlockState::Spilling)
				spiller_.make_writable(served, block);
			if (!needs_room(job->request.kind, served.state(block)))
				continue;
			if (job->request.kind == Request::Kind::Make) {
				begin_make(served, block);
				continue;
			}
			restorer_.fetch(served, block, job->start_ns);
			job->outcome.restored_bytes += served.block_bytes();
		}
	}
	active_.push_back(std::move(job));
}

/*
 * The first that may go in: in order, but who is over his own quota keeps only
 * his own jobs waiting, and a wake only wakes. waiting_.size() when there is none.
 */
size_t Room::next_to_admit()
{
	std::vector<uint32_t> over[2]; /* tenants; the second's wakes alone wait */
	bool wakes_wait = false;
	auto is_over = [&](bool waking, uint32_t tenant) {
		return std::ranges::find(over[waking], tenant) != over[waking].end();
	};

	for (size_t i = 0; i < waiting_.size(); i++) {
		Job &job = *waiting_[i].job;
		const uint32_t tenant = job.served->arena().tenant;
		const bool waking = job.request.waking;
		if (is_over(false, tenant) || (waking && (wakes_wait || is_over(true, tenant))))
			continue;
		const uint64_t bytes = waiting_[i].bytes = need(job);
		const bool in_quota = fits_quota(*job.served, bytes);
		if (job.outcome.error || (in_quota && fits(bytes)))
			return i;
		if (in_quota && !waking)
			break;
		if (in_quota)
			wakes_wait = true;
		else
			over[waking].push_back(tenant);
	}
	return waiting_.size();
}

bool Room::can_admit()
{
	return next_to_admit() < waiting_.size();
}

bool Room::try_admit()
{
	const size_t next = next_to_admit();
	if (next == waiting_.size())
		return false;
	JobPtr job = std::move(waiting_[next].job);
	waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(next));
	if (job->outcome.error)
		on_done_(job);
	else
		admit(job);
	return true;
}

void Room::count_wanted(FaultStats &stats) const
{
	auto add = [](WantedRoom &room, const Waiting &waiting) {
		(waiting.job->request.waking ? room.waking_bytes : room.bytes) += waiting.bytes;
	};

	stats.wanted = {};
	stats.wanted_by_tenant.clear();
	for (const Waiting &waiting : waiting_) {
		const uint32_t tenant = waiting.job->served->arena().tenant;
		if (tenant >= stats.wanted_by_tenant.size())
			stats.wanted_by_tenant.resize(tenant + 1);
		add(stats.wanted_by_tenant[tenant], waiting);
		if (fits_quota(*waiting.job->served, waiting.bytes))
			add(stats.wanted, waiting);
	}
}

void Room::expire(uint64_t now)
{
	auto late = [&](const JobPtr &job) {
		if (!job->expired(now))
			return false;
		job->fail(EBUSY, job->at_end() ? 0 : job->block());
		ledger_.stats.nr_no_room++;
		take_back(*job);
		on_done_(job);
		return true;
	};
	std::erase_if(waiting_, [&](Waiting &waiting) { return late(waiting.job); });
	active_.remove_if(late);
}

/* Gives up what the job still holds. Another job that wants a block queues it again when it gets
 * there. */
void Room::take_back(Job &job)
{
	for (; !job.at_end(); job.advance(1)) {
		if (job.request.kind == Request::Kind::Make &&
		    job.served->state(job.block()) == BlockState::Making)
			job.served->set_state(job.block(), BlockState::Empty);
		else
			restorer_.unqueue(*job.served, job.block());
	}
}

bool Room::pump()
{
	uint64_t budget = slice_bytes;
	bool more = false;

	expire(now_ns());
	while (try_admit())
		;
	busy_ = false;
	active_.remove_if([&](const JobPtr &job) {
		Step step = advance(*job, &budget);
		more |= step == Step::Again;
		if (step != Step::Done)
			return false;
		job->outcome.restored_ns = now_ns() - job->admitted_ns;
		job->outcome.waited_ns = job->admitted_ns - job->start_ns;
		on_done_(job);
		return true;
	});
	return more;
}

void Room::cancel(const ServedArena *served, int error)
{
	auto ours = [&](const JobPtr &job) {
		if (served && job->served != served)
			return false;
		job->fail(error, job->at_end() ? 0 : job->block());
		take_back(*job);
		on_done_(job);
		return true;
	};
	std::erase_if(waiting_, [&](Waiting &waiting) { return ours(waiting.job); });
	active_.remove_if(ours);
}

uint64_t Room::wakeup_ns() const
{
	uint64_t at = busy_ ? now_ns() + busy_retry_ns : 0;
	auto sooner = [&at](const JobPtr &job) {
		uint64_t deadline = job->request.deadline_ns;
		if (deadline && (!at || deadline < at))
			at = deadline;
	};

	for (const Waiting &waiting : waiting_)
		sooner(waiting.job);
	for (const JobPtr &job : active_)
		sooner(job);
	return at;
}

} // namespace cxlkv
