/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Arenas come and go here: from a client over the socket (native mode), or from
 * the module, which keeps them while no daemon runs. Control thread only; the
 * rest of an arena's life is the I/O thread's.
 */
#pragma once

#include "arena_table.h"
#include "policy_thread.h"
#include "sys/control_socket.h"
#include "sys/fault_server.h"
#include "sys/kmod_device.h"
#include "sys/sampler.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace cxlkv {

class Registry {
public:
	/* Called once: the arena, served from now on, or why not. On the control or the I/O thread.
	 */
	using Done = std::function<void(const Result<std::shared_ptr<ArenaEntry>> &)>;

	Registry(ArenaTable &arenas, FaultServer &faults, PolicyThread &policy, Sampler &sampler,
		 const Placement &placement, KmodDevice *module,
		 const KmodDevice::Sampling &sampling, uint64_t limit_bytes);

	/* A client's own files. key: what an earlier registration of this arena was told. */
	void add(const Peer &peer, const Geometry &geometry, ArenaFiles files, ArenaOptions options,
		 std::optional<uint64_t> key, Done done);
	/* An arena of the daemon itself, which is its own client. */
	void add_own(const Geometry &geometry, ArenaFiles files, ArenaOptions options,
		     const Done &done);
	/* The client says which of the module's arenas is its own. */
	void claim(const Peer &peer, uint64_t module_id, const std::string &name, const Done &done);

	/* -1 in native mode; else readable while the module has something to tell. */
	[[nodiscard]] int module_fd() const { return module_ ? module_->fd() : -1; }
	void serve_module();

	void drop(const std::shared_ptr<ArenaEntry> &entry, const char *why,
		  std::function<void()> done = {});
	void hangup(const Peer &peer);
	/* Drops arenas whose client died or did not come back; call about once a second. */
	void reap();
	/* Of every arena from now on. */
	void set_sampling(const KmodDevice::Sampling &sampling);
	/* Stops serving every arena but keeps its records: the clients will meet the next manager.
	 */
	void detach_all();

private:
	struct Orphan {
		uint32_t arena;
		uint64_t deadline_ns;
	};

	void attach(const std::shared_ptr<ArenaEntry> &entry, const Done &done);
	[[nodiscard]] Result<> check_size(const Geometry &geometry) const;
	void start_sampling(const ArenaEntry &entry);
	void set_sampling_of(const ArenaEntry &entry);
	void
	forget(const ArenaEntry &entry); /* policy and sampler; undoes what attach() gave them */
	void take_from_module(uint64_t module_id);
	[[nodiscard]] std::shared_ptr<ArenaEntry> find_module(uint64_t module_id) const;

	ArenaTable &arenas_;
	FaultServer &faults_;
	PolicyThread &policy_;
	Sampler &sampler_;
	const Placement &placement_;
	KmodDevice *const module_;  /* null in native mode */
	std::mutex sampling_mutex_; /* arenas are attached on the I/O thread */
	KmodDevice::Sampling sampling_;
	const uint64_t limit_bytes_;  /* of hot and warm */
	std::vector<Orphan> orphans_; /* connection lost, client alive */
};

/* The blocks of a session that exist, as runs. */
std::vector<Extent> made_blocks(const Arena &arena, uint32_t slot);

/* CLOCK_MONOTONIC, which deadlines are on. */
uint64_t monotonic_ns();

} // namespace cxlkv
