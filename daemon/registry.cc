/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "registry.h"

#include "base/log.h"
#include "sys/object_pool.h"

#include <algorithm>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>

namespace cxlkv {

namespace {

/* A client whose connection broke, but that lives, may come back within this time. */
constexpr uint64_t kReturnNs = 30ull * 1000000000;

Result<uint64_t> random_key()
{
	uint64_t key = 0;

	while (!key)
		if (getrandom(&key, sizeof(key), 0) != sizeof(key))
			return sys_error("getrandom");
	return key;
}

std::shared_ptr<ArenaEntry> make_entry(std::shared_ptr<Arena> arena, uint64_t connection,
				       uint64_t module_id)
{
	auto entry = std::make_shared<ArenaEntry>();

	entry->pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, arena->options.pid, 0)));
	entry->open_slots = std::vector<std::atomic<bool>>(arena->geometry.nr_slots);
	entry->name = arena->options.name;
	entry->arena = std::move(arena);
	entry->connection = connection;
	entry->module_id = module_id;
	return entry;
}

bool is_dead(const ArenaEntry &entry)
{
	pollfd exited{entry.pidfd.get(), POLLIN, 0};

	return entry.pidfd && ::poll(&exited, 1, 0) == 1;
}

Error not_served(int code)
{
	return error(code, std::string("serve the arena: ") + strerror(code));
}

} // namespace

uint64_t monotonic_ns()
{
	timespec t{};
	clock_gettime(CLOCK_MONOTONIC, &t);
	return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

std::vector<Extent> made_blocks(const Arena &arena, uint32_t slot)
{
	std::vector<Extent> extents;
	uint32_t begin = slot * arena.geometry.blocks_per_slot(),
		 end = begin + arena.geometry.blocks_per_slot();

	for (uint32_t block = begin; block < end; block++) {
		if (arena.where(block) == Where::Empty)
			continue;
		append(extents, {arena.options.number, block, 1});
	}
	return extents;
}

Registry::Registry(ArenaTable &arenas, FaultServer &faults, PolicyThread &policy, Sampler &sampler,
		   const Placement &placement, KmodDevice *module,
		   const KmodDevice::Sampling &sampling, uint64_t limit_bytes)
    : arenas_(arenas), faults_(faults), policy_(policy), sampler_(sampler), placement_(placement),
      module_(module), sampling_(sampling), limit_bytes_(limit_bytes)
{
}

/* What we keep of a block must not cost more than the blocks may: a client can name a billion of
 * them. */
Result<> Registry::check_size(const Geometry &geometry) const
{
	constexpr uint64_t bytes_a_block = 32, always_allowed = 1 << 20;

	if (geometry.nr_blocks() <= std::max(always_allowed, limit_bytes_ / bytes_a_block))
		return ok();
	return error(ENOMEM, fmt::format("an arena of {} blocks is too large to keep books of "
					 "beside {} MiB of hot and "
					 "warm memory; use larger blocks or fewer sessions",
					 geometry.nr_blocks(), limit_bytes_ >> 20));
}

void Registry::add(const Peer &peer, const Geometry &geometry, ArenaFiles files,
		   ArenaOptions options, std::optional<uint64_t> key, Done done)
{
	for (const auto &entry : arenas_.all()) {
		if (!key || entry->arena->options.key != *key)
			continue;
		if (entry->connection || entry->arena->options.pid != peer.pid)
			return done(error(EEXIST, "an arena with this key is being served"));
		/* The same client after its connection broke: it takes up where it was. */
		entry->connection = peer.connection;
		return done(entry);
	}
	if (key == ObjectPool::key)
		return done(error(EPERM, "this key is the daemon's own"));
	if (auto good = check_size(geometry); !good)
		return done(good.error());
	auto fresh = key ? Result<uint64_t>(*key) : random_key();
	if (!fresh)
		return done(fresh.error());
	options.key = *fresh;
	options.number = arenas_.reserve_number();
	options.pid = peer.pid;
	auto arena = Arena::create(geometry, std::move(files), std::move(options));
	if (!arena)
		return done(arena.error());
	attach(make_entry(std::move(*arena), peer.connection, 0), done);
}

void Registry::add_own(const Geometry &geometry, ArenaFiles files, ArenaOptions options,
		       const Done &done)
{
	if (auto good = check_size(geometry); !good)
		return done(good.error());
	options.number = arenas_.reserve_number();
	auto arena = Arena::create(geometry, std::move(files), std::move(options));
	if (!arena)
		return done(arena.error());
	attach(make_entry(std::move(*arena), 0, 0), done);
}

void Registry::attach(const std::shared_ptr<ArenaEntry> &entry, const Done &done)
{
	if (auto placed = placement_.place_arena(*entry->arena); !placed)
		return done(placed.error());
	arenas_.add(entry);
	Request request{};
	request.kind = Request::Kind::Attach;
	request.arena = entry->arena;
	request.done = [this, entry, done](const Outcome &o) {
		const Arena &arena = *entry->arena;
		if (o.error) {
			arenas_.remove(arena.options.number);
			return done(not_served(o.error));
		}
		policy_.attach(entry->arena,
			       entry->module_id
				       ? module_->read_state(entry->module_id, arena.geometry)
				       : std::vector<cxl_kv_hint>{});
		start_sampling(*entry);
		/* drop() came first, and found nothing to take back. Asked last: what it drops from
		 * here on it finds. */
		if (arenas_.find(arena.options.number) != entry) {
			forget(*entry);
			return done(error(ESRCH, "serve the arena: it is gone again"));
		}
		/* After a restart of ours: a session with blocks was open. Of the others nothing is
		 * said: their client may be opening them. */
		for (uint32_t slot = 0; slot < entry->open_slots.size(); slot++) {
			if (made_blocks(arena, slot).empty())
				continue;
			entry->open_slots[slot] = true;
			policy_.reopen_session(arena, slot);
		}
		log_info("arena {}: pid {} \"{}\", slots: {}, {} MiB", arena.options.number,
			 arena.options.pid, arena.options.name, arena.geometry.nr_slots,
			 arena.geometry.bytes() >> 20);
		done(entry);
	};
	faults_.submit(std::move(request));
}

void Registry::start_sampling(const ArenaEntry &entry)
{
	sampler_.add(*entry.arena, entry.sampling_id());
	set_sampling_of(entry);
}

void Registry::set_sampling(const KmodDevice::Sampling &sampling)
{
	{
		std::lock_guard lock(sampling_mutex_);
		sampling_ = sampling;
	}
	for (const auto &entry : arenas_.all())
		set_sampling_of(*entry);
}

void Registry::set_sampling_of(const ArenaEntry &entry)
{
	if (!entry.module_id || !sampler_.loaded())
		return;
	std::lock_guard lock(sampling_mutex_);
	if (auto set = module_->set_sampling(entry.module_id, sampling_); !set)
		log_warning("{}; going on by hints", set.error().what);
}

void Registry::forget(const ArenaEntry &entry)
{
	policy_.detach(entry.arena->options.number);
	sampler_.remove(*entry.arena, entry.sampling_id());
}

std::shared_ptr<ArenaEntry> Registry::find_module(uint64_t module_id) const
{
	for (const auto &entry : arenas_.all())
		if (module_id && entry->module_id == module_id)
			return entry;
	return nullptr;
}

void Registry::claim(const Peer &peer, uint64_t module_id, const std::string &name,
		     const Done &done)
{
	serve_module(); /* its event may still wait */
	auto entry = find_module(module_id);
	/* The module says whose it is; a client can't claim another's. */
	if (!entry || entry->arena->options.pid != peer.pid)
		return done(error(ENOENT, "the module has no such arena of this process"));
	entry->connection = peer.connection;
	entry->name = name;
	log_info("arena {}: claimed by \"{}\"", entry->arena->options.number, name);
	/* A request without blocks: it is answered once the arena is served, and which sessions are
	 * open is known. */
	Request request{};
	request.kind = Request::Kind::Prefetch;
	request.arena = entry->arena;
	request.done = [entry, done](const Outcome &o) {
		if (o.error)
			return done(not_served(o.error));
		done(entry);
	};
	faults_.submit(std::move(request));
}

void Registry::serve_module()
{
	if (!module_)
		return;
	while (auto event = module_->next_event()) {
		if (event->added)
			take_from_module(event->module_id);
		else if (auto entry = find_module(event->module_id))
			drop(entry, "the module let go of it");
	}
}

void Registry::take_from_module(uint64_t module_id)
{
	auto taken = module_->get(module_id);
	if (!taken)
		return log_warning("{}", taken.error().what); /* its client is gone again */
	if (auto good = check_size(taken->geometry); !good)
		return log_warning("arena {} of the module: {}", module_id, good.error().what);
	ArenaOptions options;
	options.number = arenas_.reserve_number();
	options.pid = taken->pid;
	options.client_base = taken->client_base;
	options.key = taken->key;
	options.ring = RingKeeper::Module;
	options.name = "module";
	if (!options.key) {
		auto fresh = random_key();
		if (!fresh)
			return log_error("{}", fresh.error().what);
		options.key = *fresh;
		if (auto kept = module_->set_key(module_id, options.key); !kept)
			return log_warning("{}", kept.error().what);
	}
	auto arena = Arena::create(taken->geometry, std::move(taken->files), std::move(options));
	if (!arena)
		return log_warning("arena {} of the module: {}", module_id, arena.error().what);
	attach(make_entry(std::move(*arena), 0, module_id), [module_id](const auto &result) {
		if (!result)
			log_warning("arena {} of the module: {}", module_id, result.error().what);
	});
}

void Registry::hangup(const Peer &peer)
{
	for (const auto &entry : arenas_.all()) {
		if (entry->connection != peer.connection)
			continue;
		entry->connection = 0;
		/* The module tells us when its client is gone. */
		if (!entry->module_id)
			orphans_.push_back(
				{entry->arena->options.number, monotonic_ns() + kReturnNs});
	}
	reap();
}

void Registry::reap()
{
	/* A child that a dead client left behind may still hold its socket open: no hang-up. */
	for (const auto &entry : arenas_.all())
		if (!entry->module_id && is_dead(*entry))
			drop(entry, "client died");
	std::erase_if(orphans_, [&](const Orphan &orphan) {
		auto entry = arenas_.find(orphan.arena);
		if (!entry || entry->connection)
			return true; /* dropped, or back */
		if (monotonic_ns() < orphan.deadline_ns)
			return false;
		drop(entry, "client did not come back");
		return true;
	});
}

void Registry::drop(const std::shared_ptr<ArenaEntry> &entry, const char *why,
		    std::function<void()> done)
{
	uint32_t number = entry->arena->options.number;

	if (!arenas_.remove(number))
		return;
	forget(*entry);
	log_info("arena {}: {}", number, why);
	Request request{};
	request.kind = Request::Kind::Detach;
	request.arena = entry->arena;
	request.done = [done = std::move(done)](const Outcome &) {
		if (done)
			done();
	};
	faults_.submit(std::move(request));
}

void Registry::detach_all()
{
	for (const auto &entry : arenas_.all()) {
		Request request{};
		request.kind = Request::Kind::Detach;
		request.arena = entry->arena;
		request.keep = true;
		faults_.submit(std::move(request));
	}
}

} // namespace cxlkv
