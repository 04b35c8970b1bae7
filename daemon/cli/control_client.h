/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command line's side of the control socket (docs/control-protocol.md): one question, one
 * answer. */
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "sys/host.h"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace cxlkv {

class ControlClient {
public:
	/* $CXL_KV_SOCKET, else /run/cxl-kv/control.sock. */
	static Result<ControlClient> connect();

	/* Sends the request, waits for its answer: at most timeout_ms. An answer with "error"
	 * is EREMOTEIO; the daemon's absence is ENOENT, ECONNREFUSED or ENOTCONN. */
	Result<nlohmann::json> call(nlohmann::json request, int timeout_ms = 10000);
	/* The next event of a `record`; ETIMEDOUT where none comes in time. */
	Result<nlohmann::json> next_event(int timeout_ms);
	/* Sends a request whose answer comes between events: next_event() has it, too. */
	Result<> send(nlohmann::json request);

private:
	explicit ControlClient(Fd fd) : fd_(std::move(fd)) {}
	Result<std::string> read_line(int timeout_ms);

	Fd fd_;
	std::string input_;
	unsigned next_id_ = 1;
};

/* One request on a connection of its own. */
Result<nlohmann::json> ask_daemon(const nlohmann::json &request);
/* The same; an ExitCode, 0 when the answer is there. Failure is complained about. */
int ask_daemon(const nlohmann::json &request, nlohmann::json &answer);
/* Is there a unit for systemd to start? */
bool service_installed(const Host &host);
constexpr const char *kNoService =
	"cxl-kvd is not installed as a service here; `cxl-kvd --config FILE` starts one";
/* Says on stderr what is wrong and what to do; the ExitCode that belongs to it. */
int complain(const Error &error);

/* Fields of an answer by JSON pointer ("/tiers/hot/bytes"). Absent or of another type: 0, "". */
uint64_t number_at(const nlohmann::json &json, const char *pointer);
double real_at(const nlohmann::json &json, const char *pointer);
std::string text_at(const nlohmann::json &json, const char *pointer);

/*
 * The arena of that number in an answer to "list"; of 0, the first of an engine, else the
 * daemon's own, which keeps objects and has one layer and head. Null where there is none.
 */
nlohmann::json pick_arena(const nlohmann::json &list, uint64_t number,
			  const nlohmann::json &status);

} // namespace cxlkv
