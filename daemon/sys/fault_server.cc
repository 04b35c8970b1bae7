/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The loop of the I/O thread, and what crosses to other threads. */
#include "sys/fault_server.h"

#include "base/log.h"
#include "sys/attach.h"
#include "sys/fault_events.h"
#include "sys/room.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace cxlkv {

namespace {

enum : uint64_t { TAG_INBOX, TAG_STORE, TAG_ARENAS };

} // namespace

struct FaultServer::Impl {
	Impl(const FaultServerOptions &server_options, std::unique_ptr<SpillStore> spill_store);

	Result<> watch(int fd, uint64_t tag);
	Result<> loop();
	int timeout_ms(bool more) const;
	void handle_events(std::span<const epoll_event> events);
	void handle_completions();
	void take_inbox();
	void accept(Request &&request);
	void begin_detach(Request &&request);
	void finish_detaches();
	void retire_gone();
	void drop_orphans();
	void attach_arena(Request &&request);
	void answer(Request &&request, const Outcome &outcome);
	void publish();
	uint64_t used_bytes(const uint32_t *tenant) const;
	Result<> shut_down();

	const FaultServerOptions options;
	std::unique_ptr<SpillStore> store;
	Fd epoll, inbox_event;
	Ledger ledger;

	struct Served {
		std::unique_ptr<ServedArena> arena;
		bool retired = false;
	};
	std::map<uint32_t, Served> arenas;
	std::vector<Request> detaching;
	/* Arenas of an earlier daemon's time, until they attach or the time is over. */
	std::set<uint64_t> orphans;
	uint64_t orphans_until_ns = 0;
	std::vector<JobPtr> ended; /* answered at the end of the round, after the figures are out */

	Restorer restorer;
	Spiller spiller;
	FaultEvents events;
	Room room;
	bool stopping = false;

	std::mutex mutex; /* of what follows */
	std::vector<Request> inbox;
	std::vector<Moved> moved;
	FaultStats published;
	bool stop_asked = false;
};

FaultServer::Impl::Impl(const FaultServerOptions &server_options,
			std::unique_ptr<SpillStore> spill_store)
    : options(server_options), store(std::move(spill_store)), restorer(*store, ledger, options),
      spiller(
	      *store, ledger, options, [this](ServedArena &served) { events.drain(served); },
	      [this](JobPtr job) { ended.push_back(std::move(job)); }),
      events(ledger, spiller, restorer),
      room(
	      ledger, spiller, restorer, *store, options,
	      [this](const uint32_t *tenant) { return used_bytes(tenant); },
	      [this](JobPtr job) { ended.push_back(std::move(job)); })
{
	if (options.orphan_grace_ns) {
		orphans = store->arenas();
		orphans_until_ns = now_ns() + options.orphan_grace_ns;
	}
}

FaultServer::FaultServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FaultServer::~FaultServer() = default;

Result<std::unique_ptr<FaultServer>> FaultServer::create(const FaultServerOptions &options,
							 std::unique_ptr<SpillStore> store)
{
	auto impl = std::make_unique<Impl>(options, std::move(store));

	impl->epoll = Fd(epoll_create1(EPOLL_CLOEXEC));
	impl->inbox_event = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!impl->epoll || !impl->inbox_event)
		return sys_error("fault server");
	if (auto watched = impl->watch(impl->inbox_event.get(), TAG_INBOX); !watched)
		return watched.error();
	if (auto watched = impl->watch(impl->store->event_fd(), TAG_STORE); !watched)
		return watched.error();
	impl->publish();
	return std::unique_ptr<FaultServer>(new FaultServer(std::move(impl)));
}

void FaultServer::submit(Request request)
{
	{
		std::lock_guard lock(impl_->mutex);
		impl_->inbox.push_back(std::move(request));
	}
	eventfd_write(impl_->inbox_event.get(), 1);
}

void FaultServer::stop()
{
	{
		std::lock_guard lock(impl_->mutex);
		impl_->stop_asked = true;
	}
	eventfd_write(impl_->inbox_event.get(), 1);
}

std::vector<Moved> FaultServer::drain_moved()
{
	std::lock_guard lock(impl_->mutex);
	return std::exchange(impl_->moved, {});
}

FaultStats FaultServer::stats() const
{
	std::unique_lock lock(impl_->mutex);
	FaultStats stats = impl_->published;
	lock.unlock();
	stats.restore_p50_ns = impl_->ledger.times.restore_ns.permille(500);
	stats.restore_p99_ns = impl_->ledger.times.restore_ns.permille(990);
	return stats;
}

void FaultServer::set_memory_limit(uint64_t bytes)
{
	impl_->room.set_limit(bytes);
}

const FaultTimes &FaultServer::times() const
{
	return impl_->ledger.times;
}

void FaultServer::on_want_room(std::function<void()> callback)
{
	impl_->room.on_want_room(std::move(callback));
}

Result<> FaultServer::run()
{
	return impl_->loop();
}

Result<> FaultServer::Impl::watch(int fd, uint64_t tag)
{
	struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = tag}};

	if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event))
		return sys_error("watch a file");
	return ok();
}

Result<> FaultServer::Impl::loop()
{
	std::array<epoll_event, 64> ready;
	bool more = false;

	while (!stopping || spiller.nr_in_flight() || restorer.nr_in_flight()) {
		int nr = epoll_wait(epoll.get(), ready.data(), ready.size(), timeout_ms(more));
		if (nr < 0 && errno != EINTR)
			return sys_error("wait for faults");
		/* Threads that are blocked go first. */
		handle_events({ready.data(), static_cast<size_t>(std::max(nr, 0))});
		restorer.pump();
		handle_completions();
		take_inbox();
		retire_gone();
		drop_orphans();
		more = room.pump();
		restorer.pump();
		more |= spiller.pump();
		more |= room.can_admit();
		finish_detaches();
		publish();
	}
	return shut_down();
}

int FaultServer::Impl::timeout_ms(bool more) const
{
	if (more)
		return 0;
	uint64_t now = now_ns(), at = 0;
	const uint64_t orphans_at = orphans.empty() ? 0 : orphans_until_ns;
	for (uint64_t wanted : {room.wakeup_ns(), restorer.retry_at_ns(), orphans_at})
		if (wanted && (!at || wanted < at))
			at = wanted;
	if (!at)
		return -1;
	return at <= now ? 0
			 : static_cast<int>(
				   std::min<uint64_t>((at - now + 999'999) / 1'000'000, 60'000));
}

void FaultServer::Impl::handle_events(std::span<const epoll_event> ready)
{
	for (const epoll_event &event : ready) {
		uint64_t tag = event.data.u64;
		if (tag == TAG_INBOX) {
			eventfd_t count;
			eventfd_read(inbox_event.get(), &count);
		}
		auto it = tag < TAG_ARENAS ? arenas.end()
					   : arenas.find(static_cast<uint32_t>(tag - TAG_ARENAS));
		if (it == arenas.end() || stopping)
			continue;
		ServedArena &served = *it->second.arena;
		if (event.events & EPOLLERR) {
			/* The client made its userfaultfd blocking; only an attacker does that. */
			log_error("arena {}: its userfaultfd cannot be polled",
				  served.arena().options.number);
			served.set_gone();
			continue;
		}
		events.drain(served);
	}
}

void FaultServer::Impl::handle_completions()
{
	for (StoreCompletion &completion : store->poll()) {
		if (completion.write)
			spiller.complete(std::move(completion));
		else
			restorer.complete(std::move(completion));
	}
}

void FaultServer::Impl::take_inbox()
{
	std::vector<Request> requests;
	bool stop_now;
	{
		std::lock_guard lock(mutex);
		requests = std::exchange(inbox, {});
		stop_now = stop_asked && !stopping;
	}
	for (Request &request : requests)
		accept(std::move(request));
	if (stop_now) {
		stopping = true;
		spiller.cancel(nullptr, ECANCELED);
		room.cancel(nullptr, ECANCELED);
	}
}

void FaultServer::Impl::accept(Request &&request)
{
	auto it = arenas.find(request.arena->options.number);
	bool known = it != arenas.end() && &it->second.arena->arena() == request.arena.get();

	if (stopping)
		return answer(std::move(request), {ECANCELED, 0, 0});
	if (request.kind == Request::Kind::Attach)
		return attach_arena(std::move(request));
	if (!known)
		return answer(std::move(request), {ESRCH, 0, 0});
	ServedArena &served = *it->second.arena;
	if (request.kind == Request::Kind::Detach)
		return begin_detach(std::move(request));
	if (served.gone() || served.leaving)
		return answer(std::move(request), {ESRCH, 0, 0});

	uint64_t nr_blocks = 0;
	std::erase_if(request.extents, [](const Extent &extent) { return !extent.nr; });
	for (const Extent &extent : request.extents) {
		nr_blocks += extent.nr;
		/* The sum keeps a client from naming the same blocks over and over. */
		if (extent.first >= served.nr_blocks() ||
		    extent.nr > served.nr_blocks() - extent.first || nr_blocks > served.nr_blocks())
			return answer(std::move(request), {EINVAL, extent.first, 0});
	}
	auto job = std::make_shared<Job>(std::move(request), &served);
	if (job->at_end())
		ended.push_back(std::move(job));
	else if (job->request.kind == Request::Kind::Spill)
		spiller.enqueue(std::move(job));
	else
		room.enqueue(std::move(job));
}

void FaultServer::Impl::attach_arena(Request &&request)
{
	uint32_t number = request.arena->options.number;

	if (arenas.count(number))
		return answer(std::move(request), {EEXIST, 0, 0});
	auto served = std::make_unique<ServedArena>(request.arena, ledger);
	auto attached = attach(*served, *store, restorer, options);
	if (attached)
		attached = watch(request.arena->uffd(), TAG_ARENAS + number);
	if (!attached) {
		log_error("arena {}: {}", number, attached.error().what);
		restorer.forget(*served);
		return answer(std::move(request), {attached.error().code, 0, 0});
	}
	orphans.erase(served->key());
	arenas[number].arena = std::move(served);
	answer(std::move(request), {});
}

void FaultServer::Impl::begin_detach(Request &&request)
{
	Served &served = arenas.at(request.arena->options.number);

	if (served.arena->leaving)
		return answer(std::move(request), {ESRCH, 0, 0});
	served.arena->leaving = true;
	detaching.push_back(std::move(request));
}

/* An arena that leaves or whose client is gone: its jobs end, its events are read no more. */
void FaultServer::Impl::retire_gone()
{
	for (auto &[number, served] : arenas) {
		if (served.retired || (!served.arena->gone() && !served.arena->leaving))
			continue;
		served.retired = true;
		epoll_ctl(epoll.get(), EPOLL_CTL_DEL, served.arena->arena().uffd(), nullptr);
		spiller.cancel(served.arena.get(), ESRCH);
		room.cancel(served.arena.get(), ESRCH);
		restorer.forget(*served.arena);
	}
}

/* Their clients died with the daemon before, or with the machine: else they would be back. */
void FaultServer::Impl::drop_orphans()
{
	if (orphans.empty() || now_ns() < orphans_until_ns)
		return;
	log_info("the records of arenas that did not come back are dropped: {} arenas",
		 orphans.size());
	for (uint64_t key : std::exchange(orphans, {}))
		store->drop_arena(key);
}

void FaultServer::Impl::finish_detaches()
{
	std::erase_if(detaching, [this](Request &request) {
		uint32_t number = request.arena->options.number;
		Served &served = arenas.at(number);
		/* Not before retire_gone(): a job may still name the arena. */
		if (!served.retired || served.arena->nr_in_flight)
			return false;
		restorer.forget(*served.arena); /* what came back for want of memory */
		served.arena->unprotect(0, served.arena->nr_blocks());
		if (!request.keep)
			store->drop_arena(served.arena->key());
		arenas.erase(number);
		answer(std::move(request), {});
		return true;
	});
}

void FaultServer::Impl::answer(Request &&request, const Outcome &outcome)
{
	auto job = std::make_shared<Job>(std::move(request), nullptr);
	job->outcome = outcome;
	ended.push_back(std::move(job));
}

uint64_t FaultServer::Impl::used_bytes(const uint32_t *tenant) const
{
	uint64_t bytes = 0;

	for (const auto &[number, served] : arenas) {
		const Arena &arena = served.arena->arena();
		if (!tenant || arena.tenant == *tenant)
			bytes +=
				arena.bytes.hot + arena.bytes.warm + served.arena->reserved_bytes();
	}
	return bytes;
}

/* Figures first, then answers: who gets an answer finds it counted. */
void FaultServer::Impl::publish()
{
	FaultStats &stats = ledger.stats;

	const StoreStats current = store->stats();
	if (current.nr_failures() != stats.store.nr_failures())
		stats.store_failed_ns = now_ns();
	stats.store = current;
	stats.coming_bytes = ledger.reserved_bytes;
	room.count_wanted(stats);
	{
		std::lock_guard lock(mutex);
		published = stats;
		moved.insert(moved.end(), ledger.moved.begin(), ledger.moved.end());
	}
	ledger.moved.clear();
	for (const JobPtr &job : std::exchange(ended, {}))
		if (job->request.done)
			job->request.done(job->outcome);
}

/* Clients keep what is in memory, and write to it, until a new manager attaches. */
Result<> FaultServer::Impl::shut_down()
{
	for (auto &[number, served] : arenas)
		served.arena->unprotect(0, served.arena->nr_blocks());
	for (Request &request : std::exchange(detaching, {}))
		answer(std::move(request), {ECANCELED, 0, 0});
	Result<> synced = store->sync();
	publish();
	return synced ? ok() : synced.error().in("shutdown");
}

} // namespace cxlkv
