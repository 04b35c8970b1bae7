/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the lines of the control socket mean (docs/control-protocol.md). Runs on
 * the control thread; long requests are answered later, from the I/O thread.
 * Everything in a line is checked here before anything else sees it.
 */
#pragma once

#include "arena_table.h"
#include "bandwidths.h"
#include "base/histogram.h"
#include "core/wake_gate.h"
#include "object_thread.h"
#include "policy_thread.h"
#include "registry.h"
#include "sys/control_socket.h"
#include "sys/fault_server.h"

#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace cxlkv {

struct Answer;

class Control {
public:
	struct Parts {
		ControlSocket &socket;
		ArenaTable &arenas;
		FaultServer &faults;
		PolicyThread &policy;
		Recorder &recorder;
		Registry &registry;
		ObjectThread &objects;
		const Placement &placement;
		Bandwidths &bandwidths;
		const Tenants &tenants;
		bool has_warm;           /* there is a warm tier */
		std::string cold_format; /* of arenas that did not choose one */
		int uffd_device;         /* open /dev/userfaultfd for clients, or -1 */
	};

	/* status: the answer to `status`, made by whoever knows all parts. */
	Control(const Parts &parts, const WakeGate &gate);
	~Control();

	[[nodiscard]] ControlSocket::Handler handler();
	/* settings -> answer of `tune` (reload.h). */
	using Tune = std::function<Result<nlohmann::json>(const nlohmann::json &settings)>;
	void on_tune(Tune tune) { tune_ = std::move(tune); }
	/* health: a part of the status, but asked for by clients, and so often. */
	void on_status(std::function<nlohmann::json()> status,
		       std::function<nlohmann::json()> health)
	{
		status_ = std::move(status);
		health_ = std::move(health);
	}
	/* Answers of decide by tenant and Verdict; the control thread's. */
	std::vector<std::array<uint64_t, 4>> nr_verdicts;
	/* Begins to serve the arena that keyed objects lie in, once; see object_thread.h. */
	void start_object_pool();
	/* Answers wakes whose time is over; returns when the next one's is, at most max_ms. */
	int expire_wakes(int max_ms);
	[[nodiscard]] size_t nr_waiting_wakes() const;
	Histogram wakes_ns; /* wake to all blocks resident, the wait for its turn included */
	std::atomic<uint64_t> nr_busy{0}; /* sessions that were told to come again */

private:
	using Files = std::deque<Fd>;
	using Op = void (Control::*)(const Peer &, const nlohmann::json &, Answer, Files &);
	struct OpEntry {
		const char *name;
		Op op;
	};
	static const OpEntry kOps[];

	bool line(const Peer &peer, const std::string &text, Files &files);

	void op_hello(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_register(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_unregister(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_make(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_fetch(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_drop(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_session(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_wake(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_park(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_prefetch(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_health(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_status(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_decide(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_list(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_heads(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	/* operate.cc: what an operator may do to arenas that are not his. */
	void op_pin(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_tune(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_drain(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_record(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_record_end(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);

	/* Keyed objects: control_objects.cc */
	void op_rings(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_buffer(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_buffer_remove(const Peer &peer, const nlohmann::json &in, Answer answer,
			      Files &files);
	void op_namespace(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_namespace_stats(const Peer &peer, const nlohmann::json &in, Answer answer,
				Files &files);
	void op_namespace_close(const Peer &peer, const nlohmann::json &in, Answer answer,
				Files &files);

	/* Tiers of the engines' own: control_advice.cc */
	void op_tier_open(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_tier_close(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_tier_stats(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);
	void op_advice(const Peer &peer, const nlohmann::json &in, Answer answer, Files &files);

	std::shared_ptr<ArenaEntry> own_arena(const Peer &peer, const nlohmann::json &in,
					      const Answer &answer);
	void submit(Request request, std::function<void(const Outcome &)> done);
	void submit_ranges(Request::Kind kind, const Peer &peer, const nlohmann::json &in,
			   const Answer &answer);
	void registered(const Answer &answer, uint32_t tenant,
			const Result<std::shared_ptr<ArenaEntry>> &result);
	void session_hint(Arena &arena, uint32_t slot, cxl_kv_hint_kind kind);
	void open_session(const std::shared_ptr<ArenaEntry> &entry, uint32_t slot,
			  const Answer &answer);
	void close_session(const std::shared_ptr<ArenaEntry> &entry, uint32_t slot,
			   const Answer &answer);

	/* Told to come again. */
	void busy(const Answer &answer, const char *why, uint32_t retry_ms);
	/* A session on its way back; those that wait for their turn are in the gate. */
	struct Wake;
	[[nodiscard]] uint32_t retry_after_wakes() const;
	void start_wakes();
	/* False: it may not start, and was told so. */
	bool start_wake(uint64_t id, const Wake &wake);
	void end_wake(uint64_t id);
	void refuse_wake(const Wake &wake, const char *why, uint32_t retry_ms);

	Parts parts_;
	std::function<nlohmann::json()> status_;
	Tune tune_;
	std::function<nlohmann::json()> health_;
	bool object_pool_started_ = false;
	struct Client {
		std::string name;
		uint32_t tenant = 0;
	};
	std::map<uint64_t, Client> clients_; /* by connection, as its hello said */

	mutable std::mutex wakes_mutex_;
	WakeGate gate_;
	std::map<uint64_t, Wake> waiting_wakes_;
	uint64_t next_wake_ = 1;
};

} // namespace cxlkv
