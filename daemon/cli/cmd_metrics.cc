/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cxl-kv metrics: Prometheus text, once on stdout, or over HTTP on the loopback
 * address until it is killed. A process of its own, so that the daemon needs no
 * network.
 */
#include "base/fd.h"
#include "base/result.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/metrics.h"

#include <arpa/inet.h>
#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>

namespace cxlkv {

namespace {

using nlohmann::json;

/* A scrape is one line and some headers; who sends more, or slowly, is no scraper. */
constexpr size_t kMaxRequest = 8192;
/* For all of a request, and for all of the answer: others wait meanwhile. */
constexpr std::chrono::milliseconds kTimeout{2000};

using Clock = std::chrono::steady_clock;

bool wait_for(const Fd &peer, short events, Clock::time_point deadline)
{
	auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
	pollfd waiting = {peer.get(), events, 0};

	return left.count() > 0 && ::poll(&waiting, 1, static_cast<int>(left.count())) > 0;
}

Result<std::string> scrape()
{
	auto status = ask_daemon({{"op", "status"}});
	if (!status)
		return status.error();
	auto list = ask_daemon({{"op", "list"}});
	if (!list)
		return list.error();
	return metrics_text(*status, *list);
}

/* Up to the empty line; "" when it does not come in time. */
std::string read_request(const Fd &peer)
{
	const auto deadline = Clock::now() + kTimeout;
	std::string request;

	while (request.find("\r\n\r\n") == std::string::npos) {
		char buffer[1024];
		if (request.size() > kMaxRequest || !wait_for(peer, POLLIN, deadline))
			return "";
		ssize_t n = ::recv(peer.get(), buffer, sizeof(buffer), 0);
		if (n <= 0)
			return "";
		request.append(buffer, static_cast<size_t>(n));
	}
	return request;
}

void answer(const Fd &peer)
{
	std::string request = read_request(peer), status = "200 OK", body;

	if (request.rfind("GET /metrics ", 0) == 0) {
		auto text = scrape();
		body = text ? *text : metrics_text_down();
	} else {
		status = request.rfind("GET ", 0) == 0 ? "404 Not Found" : "400 Bad Request";
		body = "GET /metrics\n";
	}
	std::string reply = fmt::format(
		"HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
		"Content-Length: {}\r\nConnection: close\r\n\r\n{}",
		status, body.size(), body);
	const auto deadline = Clock::now() + kTimeout;
	for (size_t done = 0; done < reply.size();) {
		ssize_t n = wait_for(peer, POLLOUT, deadline)
				    ? ::send(peer.get(), reply.data() + done, reply.size() - done,
					     MSG_NOSIGNAL | MSG_DONTWAIT)
				    : -1;
		if (n <= 0)
			return; /* the scraper is gone or asleep; the next one gets its own answer
				 */
		done += static_cast<size_t>(n);
	}
}

Result<> serve(uint16_t port)
{
	Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	sockaddr_in address = {};
	socklen_t size = sizeof(address);
	int on = 1;

	if (!listener)
		return sys_error("socket");
	address.sin_family = AF_INET;
	address.sin_port = htons(port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (::bind(listener.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)) ||
	    ::listen(listener.get(), 16) ||
	    ::getsockname(listener.get(), reinterpret_cast<sockaddr *>(&address), &size))
		return sys_error(fmt::format("127.0.0.1:{}", port));
	fmt::print("http://127.0.0.1:{}/metrics\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		Fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
		if (peer)
			answer(peer);
		else if (errno != EINTR && errno != ECONNABORTED)
			return sys_error("accept");
	}
}

} // namespace

int cmd_metrics(int argc, char **argv)
{
	uint64_t port = 0;
	bool listen = false;
	Args args("metrics", "Prints the daemon's counters as Prometheus text. With --port serves "
			     "them over HTTP at\n"
			     "127.0.0.1 instead, as GET /metrics; cxl_kv_up says there whether the "
			     "daemon answers.");
	args.check(
		'p', "port", "PORT",
		[&](const std::string &text) -> std::string {
			char *end = nullptr;
			port = strtoull(text.c_str(), &end, 10);
			listen = true;
			return !text.empty() && !*end && port < 65536
				       ? ""
				       : "a port from 0 (any) to 65535";
		},
		"serve over HTTP at this port of 127.0.0.1; 0 takes a free one");
	if (auto exit = args.parse(argc, argv))
		return *exit;

	if (listen) {
		auto served = serve(static_cast<uint16_t>(port));
		return served ? kExitOk : complain(served.error());
	}
	auto text = scrape();
	if (!text)
		return complain(text.error());
	fmt::print("{}", *text);
	return kExitOk;
}

} // namespace cxlkv
