/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/control_client.h"

#include "base/json_from.h"
#include "cli/commands.h"
#include "cli/json_text.h"
#include "sys/control_socket.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace cxlkv {

namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

/* Answers to us are longer than requests: a list of every arena and head. */
constexpr size_t kMaxAnswer = 64u << 20;

std::string socket_path()
{
	const char *path = getenv("CXL_KV_SOCKET");
	return path && *path ? path : "/run/cxl-kv/control.sock";
}

Result<json> parse_answer(const std::string &line)
{
	auto answer = json_from(line);
	if (!answer)
		return error(EPROTO, "the daemon's answer: " + answer.error().what);
	if (!answer->is_object())
		return error(EPROTO, "the daemon's answer is not a JSON object");
	if (answer->contains("error")) {
		std::string why = text_at(*answer, "/message");
		return error(EREMOTEIO,
			     why.empty() ? "the daemon says " + text_at(*answer, "/error") : why);
	}
	return answer;
}

/* nullptr where there is no such field. */
const json *field(const json &object, const char *pointer)
{
	json::json_pointer at(pointer);
	return object.contains(at) ? &object.at(at) : nullptr;
}

} // namespace

Result<ControlClient> ControlClient::connect()
{
	std::string path = socket_path();
	sockaddr_un address = {};
	address.sun_family = AF_UNIX;
	if (path.size() >= sizeof(address.sun_path))
		return error(ENAMETOOLONG,
			     fmt::format("CXL_KV_SOCKET={}: a socket's path has up to {} bytes",
					 path, sizeof(address.sun_path) - 1));
	memcpy(address.sun_path, path.data(), path.size());

	Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (!fd)
		return sys_error("socket");
	if (::connect(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)))
		return sys_error(path);
	return ControlClient(std::move(fd));
}

Result<> ControlClient::send(json request)
{
	request["id"] = next_id_++;
	std::string line = json_text(request) + "\n";

	/* The daemon would hang up. */
	if (line.size() > ControlSocket::kMaxLine)
		return error(E2BIG, fmt::format("a request of {} bytes: the daemon takes {}",
						line.size(), ControlSocket::kMaxLine));
	for (size_t done = 0; done < line.size();) {
		ssize_t n = ::send(fd_.get(), line.data() + done, line.size() - done, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error(ENOTCONN,
				     std::string("the daemon hung up: ") + strerror(errno));
		done += static_cast<size_t>(n);
	}
	return ok();
}

Result<json> ControlClient::next_event(int timeout_ms)
{
	auto line = read_line(timeout_ms);
	return line ? parse_answer(*line) : line.error();
}

Result<json> ControlClient::call(json request, int timeout_ms)
{
	const unsigned id = next_id_;
	if (auto sent = send(std::move(request)); !sent)
		return sent.error();
	for (;;) {
		auto answer_line = read_line(timeout_ms);
		if (!answer_line)
			return answer_line.error();
		auto answer = parse_answer(*answer_line);
		/* Answers to older requests, whose wait ran out, are passed over. */
		if (!answer || number_at(*answer, "/id") == id)
			return answer;
	}
}

Result<std::string> ControlClient::read_line(int timeout_ms)
{
	auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);

	for (size_t newline; (newline = input_.find('\n')) == std::string::npos;) {
		auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline -
										  Clock::now());
		pollfd waiting = {fd_.get(), POLLIN, 0};
		int ready =
			::poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready < 0)
			return sys_error("poll");
		if (ready == 0)
			return error(
				ETIMEDOUT,
				fmt::format("the daemon did not answer within {} ms", timeout_ms));
		char buffer[65536];
		ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error(ENOTCONN, "the daemon hung up");
		input_.append(buffer, static_cast<size_t>(n));
		if (input_.size() > kMaxAnswer)
			return error(EPROTO, "the daemon's answer has no end");
	}
	size_t newline = input_.find('\n');
	std::string line = input_.substr(0, newline);
	input_.erase(0, newline + 1);
	return line;
}

bool service_installed(const Host &host)
{
	static const char *const folders[] = {"/etc/systemd/system", "/run/systemd/system",
					      "/usr/local/lib/systemd/system",
					      "/usr/lib/systemd/system", "/lib/systemd/system"};
	return std::ranges::any_of(folders, [&](const char *folder) {
		return host.exists(std::string(folder) + "/cxl-kvd.service");
	});
}

int complain(const Error &error)
{
	switch (error.code) {
	case ENOENT:
	case ECONNREFUSED:
	case ENOTCONN:
		fmt::print(stderr,
			   "cxl-kv: no daemon: {}\n"
			   "{};\n"
			   "CXL_KV_SOCKET names another socket.\n",
			   error.what,
			   service_installed(Host())
				   ? "Start it with `systemctl start cxl-kvd` (or `cxl-kvd "
				     "--config FILE`)"
				   : kNoService);
		return kExitNoDaemon;
	case EACCES:
		fmt::print(stderr, "cxl-kv: {}\nBe root or in the group cxl-kv.\n", error.what);
		return kExitFailure;
	default:
		fmt::print(stderr, "cxl-kv: {}\n", error.what);
		return kExitFailure;
	}
}

Result<json> ask_daemon(const json &request)
{
	auto client = ControlClient::connect();
	if (!client)
		return client.error();
	return client->call(request);
}

int ask_daemon(const json &request, json &answer)
{
	auto got = ask_daemon(request);
	if (!got)
		return complain(got.error());
	answer = std::move(*got);
	return kExitOk;
}

uint64_t number_at(const json &json, const char *pointer)
{
	const auto *value = field(json, pointer);
	if (!value || !value->is_number_integer())
		return 0;
	return value->is_number_unsigned() || value->get<int64_t>() > 0 ? value->get<uint64_t>()
									: 0;
}

double real_at(const json &json, const char *pointer)
{
	const auto *value = field(json, pointer);
	return value && value->is_number() ? value->get<double>() : 0;
}

std::string text_at(const json &json, const char *pointer)
{
	const auto *value = field(json, pointer);
	return value && value->is_string() ? value->get<std::string>() : "";
}

json pick_arena(const json &list, uint64_t number, const json &status)
{
	const uint64_t daemon = number_at(status, "/pid");
	json picked;

	if (!list.contains("arenas") || !list["arenas"].is_array())
		return picked;
	for (const json &arena : list["arenas"]) {
		const bool wanted = number ? number_at(arena, "/arena") == number
					   : number_at(arena, "/pid") != daemon;
		if (wanted)
			return arena;
		if (!number && picked.is_null())
			picked = arena;
	}
	return picked;
}

} // namespace cxlkv
