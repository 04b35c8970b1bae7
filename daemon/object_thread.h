/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The object thread: keyed objects that outlive the engines which stored them.
 * Takes items of work from the clients' rings and steps each until it can be
 * answered; none blocks it, since what has to wait (for room, a restore, another
 * client's store) waits in its books with a deadline. The bytes lie in an arena
 * of our own (sys/object_pool.h), so the policy, the mover and the I/O thread
 * treat them as any engine's.
 *
 * Everything private here runs on this thread; others come in through post().
 */
#pragma once

#include "core/advice.h"
#include "core/object_table.h"
#include "object_work.h"
#include "sys/fault_server.h"
#include "sys/object_file.h"
#include "sys/object_lanes.h"
#include "sys/object_pool.h"
#include "sys/object_space.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

namespace cxlkv {

struct ObjectOptions {
	uint32_t chunk_bytes = 64 << 10;
	uint32_t nr_chunks = 0;
	size_t nr_tenants = 1;
	std::string path; /* of the file that a restart finds them by */
	/* How long a shutdown may take to write them to the store. */
	uint32_t write_out_ms = 60000;
};

/* Monotonic, but for what lies where. Read by any thread. */
struct ObjectStats {
	uint64_t nr_objects = 0, nr_chunks = 0, nr_free_chunks = 0;
	uint64_t nr_clients = 0, nr_in_flight = 0; /* with rings; items */
	uint64_t nr_stored = 0, nr_loaded = 0, nr_evicted = 0, nr_removed = 0;
	uint64_t nr_checksum_failures = 0, nr_lost = 0, nr_timed_out = 0;
	bool failed = false; /* the pool cannot be served */
	/* Of the clients that are the tenant's; look-ups are keys, as the clients say. */
	struct Tenant {
		uint64_t nr_lookups = 0, nr_hits = 0, nr_stored = 0, nr_loaded = 0;
	};
	std::vector<Tenant> tenants;
};

class ObjectThread {
public:
	ObjectThread(const ObjectOptions &options, FaultServer &faults);

	/* What was saved, before run(). True: there is something, the pool should be served. */
	bool recover(const SavedObjects &saved);
	void run(); /* until stop() */
	/* Answers what is open with ECANCELED and ends run(). keep: writes the objects out
	 * first, for which the I/O thread must go on. Any thread. */
	void stop(bool keep);
	/* Runs it on this thread, soon. Any thread. */
	void post(std::function<void()> work);

	/* Others wait for so many bytes that no tier has: objects make way. Any thread. */
	void give_way(uint64_t bytes);

	/* The pool's arena is served from now on (null: why it cannot be was logged). */
	void attached(std::shared_ptr<Arena> arena);
	[[nodiscard]] ObjectPool *make_pool();

	/* What the control socket asks for; done is called on this thread. */
	struct Opened {
		uint32_t number;
		uint64_t index_bytes;
		int index_fd;
	};
	using OpenDone = std::function<void(const Result<Opened> &)>;
	void open_space(uint64_t connection, SpaceSpec spec, bool replace, OpenDone done);
	void close_space(uint64_t connection, uint32_t number);
	using Done = std::function<void(const Result<> &)>;
	/* tenant: whose figures its work counts in, below nr_tenants. */
	void add_lanes(uint64_t connection, pid_t pid, uint32_t tenant, std::deque<Fd> files,
		       Done done);
	void add_buffer(uint64_t connection, uint32_t number, Fd file, uint64_t bytes, Done done);
	void remove_buffer(uint64_t connection, uint32_t number, Done done);
	struct SpaceStats {
		uint64_t nr_objects = 0, nr_pending = 0;
		ObjectTable::Usage tenant;
	};
	/* None: no such namespace on this connection. On this thread. */
	[[nodiscard]] std::optional<SpaceStats> space_stats(uint64_t connection, uint32_t number);
	/* Of the engine's own tier; control_advice.cc. ENOENT: no such namespace, or no tier in it.
	 */
	void open_tier(uint64_t connection, uint32_t number, const AdviceOptions &options,
		       Done done);
	void close_tier(uint64_t connection, uint32_t number, Done done);
	using AdviceDone = std::function<void(const Result<std::vector<Advice>> &)>;
	/* Answers when there is advice, or at until_ns without; EBUSY: another call waits. */
	void wait_for_advice(uint64_t connection, uint32_t number, size_t max, uint64_t until_ns,
			     AdviceDone done);
	[[nodiscard]] std::optional<AdviceBook::Stats> tier_stats(uint64_t connection,
								  uint32_t number);
	void hangup(uint64_t connection);
	/* Blocks of an arena, maybe of ours, went somewhere. Any thread. */
	void moved(const Extent &extent);

	[[nodiscard]] ObjectStats stats() const;
	[[nodiscard]] uint32_t chunk_bytes() const { return options_.chunk_bytes; }

private:
	struct Space {
		SpaceSpec spec;
		uint64_t tenant;
		IndexFile file;
		std::unique_ptr<ObjectIndex> index;
	};
	/* That the engine has for itself, for blocks of one namespace. */
	struct Tier {
		AdviceBook book;
		AdviceDone waits; /* empty: nobody */
		size_t max = 0;
		uint64_t until_ns = 0;
	};
	struct Client {
		std::unique_ptr<ObjectLanes> lanes;
		ObjectLanes::Lookups lookups; /* counted */
		uint32_t tenant = 0;
		Fd pidfd;
		std::map<uint32_t, std::unique_ptr<ObjectBuffer>> buffers;
		std::multiset<uint32_t> spaces; /* as often as it opened them */
		std::set<uint64_t> works;
		std::map<uint32_t, Tier> tiers; /* by namespace */
	};
	using Timer = std::pair<uint64_t, uint64_t>; /* deadline, id of a work or an object */

	/* object_thread.cc: the loop */
	[[nodiscard]] bool watch(int fd, uint64_t tag, uint32_t events);
	void wait_for_events(int most_ms);
	[[nodiscard]] bool look_again();
	bool take_waiting();
	bool stop_looking();
	void take_posted();
	void take_items(uint64_t connection);
	void count_lookups(Client &client);
	[[nodiscard]] ObjectStats::Tenant &tenant_stats(uint64_t connection)
	{
		return counters_.tenants[clients_.at(connection).tenant];
	}
	bool accept(uint64_t connection, Client &client, cxl_kv_lane_class lane,
		    const cxl_kv_item &item);
	void run_ready();
	void expire();
	void notify_clients();
	void drop_client(uint64_t connection);
	void publish_stats();
	[[nodiscard]] int timeout_ms() const;

	/* object_restart.cc */
	void settle_recovered();
	[[nodiscard]] SavedObjects to_save(bool written_out) const;
	void save_sometimes();
	[[nodiscard]] std::vector<Extent> in_memory() const;
	void spill_all();
	void write_out();

	/* object_spaces.cc */
	Result<uint32_t> find_or_make_space(const SpaceSpec &spec, bool replace);
	[[nodiscard]] bool in_use(uint32_t space) const;
	bool forget_unused_space();
	uint32_t empty_space(uint32_t space);

	/* object_advice.cc */
	[[nodiscard]] Tier *find_tier(uint64_t connection, uint32_t space);
	bool note_use(const Work &work, float score);
	int tell_tier(const Work &work);
	void give_advice();

	/* object_work.cc: what an item does. A result, or none where it waits. */
	std::optional<int> step(Work &work);
	std::optional<int> load(Work &work);
	std::optional<int> store(Work &work);
	std::optional<int> reserve(Work &work, Object **object);
	int commit(Work &work, Object *object);
	int abort(Work &work, Object *object);
	int cancel(Work &work);
	int use(const Work &work, Object *object);
	int change(Work &work, Object *object);
	std::optional<int> bring_in(Work &work, Object &object);
	int copy_out(const Work &work, Object &object);
	int copy_in(const Work &work, Object &object);
	[[nodiscard]] const ObjectBuffer *buffer_of(const Work &work) const;

	/* object_life.cc: what becomes of objects and of who waits for them. */
	void finish(uint64_t work, int result);
	void wait_for(Work &work, const Object &object);
	void wake(const Object &object);
	void hold(Object &object);
	void release(Object &object);
	void start_make(Object &object);
	void start_fetch(Object &object, uint64_t deadline_ns);
	bool make_room(uint64_t tenant, uint64_t bytes);
	/* No longer found; who waits for it gets the error. */
	void remove(Object &object, int error);
	void drop_if_idle(Object &object);
	void request(Request::Kind kind, const Object &object, uint64_t deadline_ns,
		     void (ObjectThread::*then)(uint64_t id, int error));
	void made(uint64_t id, int error);
	void fetched(uint64_t id, int error);
	void chunks_dropped(uint64_t id, int error);
	[[nodiscard]] uint8_t tier_of(const Object &object) const;

	const ObjectOptions options_;
	FaultServer &faults_;
	Fd epoll_, posted_event_;

	std::mutex mutex_; /* of what follows */
	std::vector<std::function<void()>> posted_;
	std::atomic<bool> is_posted_{false};

	std::unique_ptr<ObjectPool> pool_; /* made by the control thread before anything uses it */
	std::shared_ptr<Arena> arena_;
	std::atomic<uint32_t> arena_number_{0};
	bool attach_failed_ = false, stop_ = false, keep_ = false;
	std::vector<std::function<void()>> opens_; /* that wait for the pool to be served */
	ObjectTable table_;
	std::map<uint32_t, Space> spaces_;
	std::map<std::string, uint64_t> tenants_; /* by salt */
	std::map<uint64_t, Client> clients_;      /* by connection */
	std::unordered_map<uint64_t, Work> works_;
	std::set<std::pair<uint32_t, uint64_t>> ready_;               /* rank, work */
	std::unordered_map<uint64_t, std::vector<uint64_t>> waiting_; /* object -> works */
	std::vector<uint64_t> want_room_;                             /* works */
	std::set<Timer> work_timers_, reservation_timers_;
	std::vector<std::byte> scratch_;
	uint32_t next_space_ = 1;
	uint64_t next_work_ = 1, next_tenant_ = 1;
	uint32_t nr_leaving_ = 0; /* objects whose chunks come free without more being done */
	uint64_t last_item_ns_ = 0;
	uint64_t next_advice_ns_ = UINT64_MAX; /* when to look whether there is some */
	unsigned nr_looks_ = 0;
	uint64_t next_save_ns_ = 0, saved_changes_ = 0;
	std::thread saver_;
	ObjectStats counters_;
	mutable std::mutex stats_mutex_;
	ObjectStats published_;
};

} // namespace cxlkv
