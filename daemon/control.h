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
#include "object_thread.h"
#include "policy_thread.h"
#include "registry.h"
#include "sys/control_socket.h"
#include "sys/fault_server.h"

#include <map>
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
		std::string cold_format; /* of arenas that did not choose one */
		int uffd_device;         /* open /dev/userfaultfd for clients, or -1 */
	};

	/* status: the answer to `status`, made by whoever knows all parts. */
	Control(const Parts &parts, std::function<nlohmann::json()> status);

	[[nodiscard]] ControlSocket::Handler handler();
	/* settings -> answer of `tune` (reload.h). */
	using Tune = std::function<Result<nlohmann::json>(const nlohmann::json &settings)>;
	void on_tune(Tune tune) { tune_ = std::move(tune); }
	Histogram wakes_ns;                    /* wake to all blocks resident */
	std::array<uint64_t, 4> nr_verdicts{}; /* of decide, by Verdict; the control thread's */
	/* Begins to serve the arena that keyed objects lie in, once; see object_thread.h. */
	void start_object_pool();

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

	std::shared_ptr<ArenaEntry> own_arena(const Peer &peer, const nlohmann::json &in,
					      const Answer &answer);
	void submit(Request request, std::function<void(const Outcome &)> done);
	void submit_ranges(Request::Kind kind, const Peer &peer, const nlohmann::json &in,
			   const Answer &answer);
	void session_hint(Arena &arena, uint32_t slot, cxl_kv_hint_kind kind);

	Parts parts_;
	std::function<nlohmann::json()> status_;
	Tune tune_;
	bool object_pool_started_ = false;
	std::map<uint64_t, std::string> names_; /* what a connection's hello called it */
};

} // namespace cxlkv
