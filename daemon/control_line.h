/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One line of the control socket: the fields of a request, none of which is
 * believed before it was looked at, and where its answer goes.
 */
#pragma once

#include "base/result.h"
#include "sys/control_socket.h"
#include "sys/fault_server.h"

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace cxlkv {

/* Nothing where the field is absent or of another kind. */
std::optional<uint32_t> get_u32(const nlohmann::json &in, const char *name);
/* 64-bit values travel as decimal strings: JSON numbers lose bits in some readers. */
std::optional<uint64_t> get_u64_text(const nlohmann::json &in, const char *name);
/* "" likewise. */
std::string get_text(const nlohmann::json &in, const char *name);
/* The end of "deadline_ms" from now, CLOCK_MONOTONIC; 0 = none. */
uint64_t deadline_of(const nlohmann::json &in);

/* Copied into callbacks; the peer may be gone by the time it is used. */
struct Answer {
	ControlSocket *socket;
	uint64_t connection;
	nlohmann::json id;

	void ok(nlohmann::json fields = nlohmann::json::object(), int fd = -1) const;
	void fail(int code, const std::string &message,
		  nlohmann::json fields = nlohmann::json::object()) const;
	void outcome(const Outcome &o) const;

private:
	void send(const nlohmann::json &fields, int fd = -1) const;
};

/* Answers ok, or with the error. */
std::function<void(const Result<> &)> answered(const Answer &answer);

} // namespace cxlkv
