/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The control socket's transport: connections, lines, files, peer credentials.
 * It knows nothing of what the lines say. One thread runs the loop; reply() may
 * be called from any.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <vector>

namespace cxlkv {

struct Peer {
	uint64_t connection = 0;
	pid_t pid = 0;
	uid_t uid = 0;
	gid_t gid = 0;
};

class ControlSocket {
public:
	static constexpr size_t kMaxLine = 64 << 10;  /* a request */
	static constexpr size_t kMaxOutput = 8 << 20; /* unread answers, then the peer is dropped */
	static constexpr size_t kMaxConnections = 1024;
	static constexpr size_t kMaxFiles =
		8; /* waiting for the line that takes them, or to be read by the peer */

	struct Handler {
		/* files holds what came with this connection so far; take from its front. False:
		 * hang up. */
		std::function<bool(const Peer &, const std::string &line, std::deque<Fd> &files)>
			line;
		std::function<void(const Peer &)> hangup;
	};

	/* Binds path (mode 0660; a stale socket file is replaced, a live one is EADDRINUSE). */
	static Result<std::unique_ptr<ControlSocket>> create(const std::string &path);
	~ControlSocket();

	/* Waits for input at most timeout_ms, then serves what is there. */
	Result<> poll(const Handler &handler, int timeout_ms);
	/* Queues one line (without newline), with a file where fd >= 0 (duplicated). False: peer is
	 * gone. */
	bool reply(uint64_t connection, const std::string &line, int fd = -1);
	/* poll() also returns when fd is readable; the caller reads it. */
	Result<> also_wake_on(int fd);
	/* Lets poll() return at once. Any thread. */
	void wake();

private:
	struct Connection {
		Fd fd;
		Peer peer;
		std::string input;
		std::deque<Fd> files;
		std::string output;                             /* guarded by mutex_ */
		std::deque<std::pair<size_t, Fd>> output_files; /* before which byte of output */
		bool dead = false;                              /* guarded by mutex_ */
	};

	ControlSocket() = default;
	void accept_all();
	bool receive(Connection &connection);
	bool serve_lines(Connection &connection, const Handler &handler);
	static bool flush(Connection &connection);
	void close_dead(const Handler &handler);

	std::string path_;
	Fd listener_, epoll_, wake_;
	std::mutex mutex_; /* connections_ against reply() */
	std::map<uint64_t, Connection> connections_;
	uint64_t next_ = 1;
};

} // namespace cxlkv
