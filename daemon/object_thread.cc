/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The loop of the object thread, its clients and their items. */
#include "object_thread.h"

#include "base/log.h"
#include "registry.h"

#include <algorithm>
#include <array>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

namespace cxlkv {

namespace {

constexpr uint64_t TAG_POSTED = 0; /* a connection has tags 2n: doorbell, 2n + 1: its process */
constexpr size_t kMaxBuffers = 64;
/* Done between two looks at what is new. */
constexpr unsigned kItemsARound = 64;
constexpr uint64_t kBytesARound = 4u << 20;
/* So long after an item the next is looked for before the thread sleeps, while a client looks for
 * its results without sleeping: to be woken takes longer than to do a job. For one that sleeps it
 * would be of no use, since its own wake-up costs more. */
constexpr uint64_t kLookNs = 20'000;
/* Other events have their turn at least this often. */
constexpr unsigned kMaxLooks = 64;
constexpr uint64_t kDefaultDeadlineNs = 30'000'000'000;

bool fits_lane(cxl_kv_lane_class lane, uint8_t op)
{
	if (lane == CXL_KV_LANE_LOAD)
		return op == CXL_KV_ITEM_LOAD;
	if (lane == CXL_KV_LANE_STORE)
		return op == CXL_KV_ITEM_STORE;
	return op >= CXL_KV_ITEM_RESERVE && op <= CXL_KV_ITEM_ADVICE_END;
}

bool has_deadline(uint8_t op)
{
	return op == CXL_KV_ITEM_LOAD || op == CXL_KV_ITEM_STORE || op == CXL_KV_ITEM_RESERVE;
}

} // namespace

ObjectThread::ObjectThread(const ObjectOptions &options, FaultServer &faults)
    : options_(options), faults_(faults), epoll_(epoll_create1(EPOLL_CLOEXEC)),
      posted_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      table_(options.nr_chunks, options.chunk_bytes), scratch_(options.chunk_bytes)
{
	counters_.tenants.resize(options.nr_tenants);
	published_ = counters_;
	if (!watch(posted_event_.get(), TAG_POSTED, EPOLLIN))
		log_error("keyed objects: {}", strerror(errno));
}

void ObjectThread::post(std::function<void()> work)
{
	{
		std::lock_guard lock(mutex_);
		posted_.push_back(std::move(work));
		is_posted_ = true;
	}
	eventfd_write(posted_event_.get(), 1);
}

void ObjectThread::stop(bool keep)
{
	post([this, keep] {
		stop_ = true;
		keep_ = keep;
	});
}

void ObjectThread::run()
{
	while (!stop_) {
		if (!look_again())
			wait_for_events(stop_looking() ? 0 : timeout_ms());
		take_posted();
		run_ready();
		expire();
		give_advice();
		notify_clients();
		publish_stats();
		save_sometimes();
	}
	for (auto &[connection, client] : clients_)
		for (uint64_t work : std::set<uint64_t>(client.works))
			finish(work, -ECANCELED);
	notify_clients();
	if (saver_.joinable())
		saver_.join();
	if (keep_)
		write_out();
}

ObjectPool *ObjectThread::make_pool()
{
	auto pool = ObjectPool::create(options_.nr_chunks, options_.chunk_bytes,
				       [this](uint32_t chunk) { return table_.owner(chunk); });

	if (!pool)
		log_error("{}", pool.error().what);
	else
		pool_ = std::move(*pool);
	return pool_.get();
}

void ObjectThread::attached(std::shared_ptr<Arena> arena)
{
	post([this, arena = std::move(arena)] {
		arena_ = arena;
		arena_number_ = arena ? arena->options.number : 0;
		attach_failed_ = !arena;
		if (arena)
			settle_recovered();
		for (auto &open : std::exchange(opens_, {}))
			open();
	});
}

/* ---- the loop ---- */

bool ObjectThread::watch(int fd, uint64_t tag, uint32_t events)
{
	struct epoll_event event = {.events = events, .data = {.u64 = tag}};

	return !epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

int ObjectThread::timeout_ms() const
{
	uint64_t at = next_advice_ns_;

	if (!ready_.empty())
		return 0;
	for (const auto *timers : {&work_timers_, &reservation_timers_})
		if (!timers->empty())
			at = std::min(at, timers->begin()->first);
	if (counters_.nr_stored + counters_.nr_removed != saved_changes_)
		at = std::min(at, next_save_ns_);
	if (at == UINT64_MAX)
		return -1;
	uint64_t now = monotonic_ns();
	return at <= now ? 0
			 : static_cast<int>(
				   std::min<uint64_t>((at - now + 999'999) / 1'000'000, 60'000));
}

/* True: there is something to do without a look at other events. */
bool ObjectThread::look_again()
{
	bool any = false;

	if (!ready_.empty() || stop_)
		return false;
	if (++nr_looks_ % kMaxLooks == 0) {
		wait_for_events(0);
		if (!ready_.empty())
			return true;
	}
	for (auto &[connection, client] : clients_)
		if (client.lanes && client.lanes->client_looks()) {
			client.lanes->set_looking(true);
			any = true;
		}
	do {
		if (take_waiting() || is_posted_)
			return true;
	} while (any && monotonic_ns() - last_item_ns_ < kLookNs);
	return false;
}

/* Of one client: others have their turn in the next round. */
bool ObjectThread::take_waiting()
{
	for (auto &[connection, client] : clients_)
		if (client.lanes && client.lanes->waiting()) {
			take_items(connection);
			return true;
		}
	return false;
}

/* From here on doorbells are rung; what came before that is taken now. True: there was some. */
bool ObjectThread::stop_looking()
{
	std::vector<uint64_t> waiting;

	for (auto &[connection, client] : clients_)
		if (client.lanes && client.lanes->set_looking(false) && client.lanes->waiting())
			waiting.push_back(connection);
	for (uint64_t connection : waiting)
		take_items(connection);
	return !waiting.empty();
}

void ObjectThread::wait_for_events(int most_ms)
{
	std::array<epoll_event, 64> ready;
	int nr = epoll_wait(epoll_.get(), ready.data(), ready.size(), most_ms);

	for (int i = 0; i < nr; i++) {
		uint64_t tag = ready[static_cast<size_t>(i)].data.u64, connection = tag / 2;
		eventfd_t count;
		if (tag == TAG_POSTED)
			eventfd_read(posted_event_.get(), &count);
		else if (tag % 2)
			drop_client(connection); /* its process ended */
		else
			take_items(connection);
	}
}

void ObjectThread::take_posted()
{
	std::vector<std::function<void()>> posted;
	if (!is_posted_)
		return;
	{
		std::lock_guard lock(mutex_);
		posted.swap(posted_);
		is_posted_ = false;
	}
	for (auto &work : posted)
		work();
}

void ObjectThread::take_items(uint64_t connection)
{
	auto it = clients_.find(connection);
	std::vector<cxl_kv_item> items;

	if (it == clients_.end() || !it->second.lanes)
		return;
	for (auto lane : {CXL_KV_LANE_LOAD, CXL_KV_LANE_STORE, CXL_KV_LANE_CALL}) {
		items.clear();
		bool sane = it->second.lanes->take(lane, CXL_KV_LANE_ENTRIES, &items);
		for (const cxl_kv_item &item : items)
			sane = sane && accept(connection, it->second, lane, item);
		if (sane)
			continue;
		log_warning("a client's rings make no sense; its objects are served no more");
		return drop_client(connection);
	}
	count_lookups(it->second);
}

void ObjectThread::count_lookups(Client &client)
{
	const ObjectLanes::Lookups now = client.lanes->lookups();
	ObjectStats::Tenant &tenant = counters_.tenants[client.tenant];
	const ObjectLanes::Lookups before = std::exchange(client.lookups, now);

	if (now.nr <= before.nr)
		return;
	tenant.nr_lookups += now.nr - before.nr;
	if (now.nr_hits > before.nr_hits)
		tenant.nr_hits += std::min(now.nr_hits - before.nr_hits, now.nr - before.nr);
}

bool ObjectThread::accept(uint64_t connection, Client &client, cxl_kv_lane_class lane,
			  const cxl_kv_item &item)
{
	if (client.works.size() >= CXL_KV_NR_LANES * size_t{CXL_KV_LANE_ENTRIES})
		return false;
	if (!fits_lane(lane, item.op) ||
	    (item.op != CXL_KV_ITEM_CANCEL && !client.spaces.contains(item.ns)))
		return client.lanes->complete(lane, item.id, -EINVAL);
	Work &work = works_[next_work_];
	work.id = next_work_++;
	work.connection = connection;
	work.lane = lane;
	work.item = item;
	work.start_ns = last_item_ns_ = monotonic_ns();
	if (has_deadline(item.op)) {
		if (!item.deadline_ns)
			work.item.deadline_ns = work.start_ns + kDefaultDeadlineNs;
		work_timers_.insert({work.item.deadline_ns, work.id});
	}
	client.works.insert(work.id);
	ready_.insert({work.rank(), work.id});
	return true;
}

void ObjectThread::run_ready()
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < kItemsARound && bytes < kBytesARound && !ready_.empty(); i++) {
		uint64_t id = ready_.begin()->second;
		ready_.erase(ready_.begin());
		Work &work = works_.at(id);
		bytes += work.item.bytes;
		if (auto result = step(work)) /* which may have ended the client, and it */
			finish(id, *result);
	}
}

void ObjectThread::expire()
{
	if (work_timers_.empty() && reservation_timers_.empty())
		return;
	uint64_t now = monotonic_ns();
	while (!work_timers_.empty() && work_timers_.begin()->first <= now) {
		counters_.nr_timed_out++;
		finish(work_timers_.begin()->second, -ETIMEDOUT);
	}
	while (!reservation_timers_.empty() && reservation_timers_.begin()->first <= now) {
		uint64_t id = reservation_timers_.begin()->second;
		reservation_timers_.erase(reservation_timers_.begin());
		if (Object *object = table_.find(id); object && object->pending())
			remove(*object, ENOENT);
	}
}

void ObjectThread::notify_clients()
{
	for (auto &[connection, client] : clients_)
		if (client.lanes)
			client.lanes->notify();
}

/* ---- clients ---- */

void ObjectThread::add_lanes(uint64_t connection, pid_t pid, uint32_t tenant, std::deque<Fd> files,
			     Done done)
{
	auto lanes = ObjectLanes::create(std::move(files));
	Client &client = clients_[connection];

	if (!lanes)
		return done(lanes.error());
	if (client.lanes)
		return done(error(EEXIST, "this connection has its rings already"));
	client.pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
	/* A child that a dead client left behind may hold its socket open: then no hang-up comes.
	 * The doorbell is never read: each ring of it is an edge. */
	if (!client.pidfd || !watch(client.pidfd.get(), connection * 2 + 1, EPOLLIN) ||
	    !watch((*lanes)->doorbell(), connection * 2, EPOLLIN | EPOLLET))
		return done(sys_error("watch a client"));
	client.lanes = std::move(*lanes);
	client.tenant = tenant;
	done(ok());
}

void ObjectThread::add_buffer(uint64_t connection, uint32_t number, Fd file, uint64_t bytes,
			      Done done)
{
	auto &buffers = clients_[connection].buffers;

	if (buffers.size() >= kMaxBuffers)
		return done(error(ENOSPC, fmt::format("more than {} buffers", kMaxBuffers)));
	auto buffer = ObjectBuffer::create(std::move(file), bytes);
	if (!buffer)
		return done(buffer.error());
	buffers[number] = std::move(*buffer);
	done(ok());
}

void ObjectThread::remove_buffer(uint64_t connection, uint32_t number, Done done)
{
	Client &client = clients_[connection];

	for (uint64_t id : client.works) {
		const Work &work = works_.at(id);
		if (work.lane != CXL_KV_LANE_CALL && work.item.buffer == number)
			return done(error(EBUSY, "a job uses the buffer"));
	}
	client.buffers.erase(number);
	done(ok());
}

void ObjectThread::hangup(uint64_t connection)
{
	post([this, connection] { drop_client(connection); });
}

/* All that it had comes back: its work is forgotten, its locks fall, what it reserved is aborted.
 */
void ObjectThread::drop_client(uint64_t connection)
{
	auto it = clients_.find(connection);

	if (it == clients_.end())
		return;
	/* The client has the same open files: closing ours would not end the watch. */
	if (it->second.lanes)
		epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.lanes->doorbell(), nullptr);
	for (uint64_t work : std::set<uint64_t>(it->second.works))
		finish(work, -ECANCELED);
	clients_.erase(it);
	for (Object *object : table_.forget_client(connection))
		remove(*object, ENOENT);
}

/* ---- figures ---- */

void ObjectThread::publish_stats()
{
	counters_.failed = attach_failed_;
	counters_.nr_objects = table_.nr_objects();
	counters_.nr_chunks = table_.nr_chunks();
	counters_.nr_clients = clients_.size();
	counters_.nr_in_flight = works_.size();
	counters_.nr_free_chunks = table_.nr_free_chunks();
	std::lock_guard lock(stats_mutex_);
	published_ = counters_;
}

ObjectStats ObjectThread::stats() const
{
	std::lock_guard lock(stats_mutex_);
	return published_;
}

} // namespace cxlkv
