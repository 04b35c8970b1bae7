/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The other end of libcxl_kv in its tests: listens on a socket and answers each
 * request with what the test's script says, nonsense included.
 */
#pragma once

#include "base/fd.h"

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace cxlkv {

class FakeManager {
public:
	struct Request {
		nlohmann::json body;
		std::vector<Fd> files;
	};
	struct Reply {
		std::string text; /* sent as it is; empty = no answer */
		bool hang_up = false;
		Fd file;
	};
	using Script = std::function<Reply(Request &)>;

	/* Listens from construction on. Destruction is what SIGKILL does to a manager. */
	FakeManager(std::string path, Script script);
	~FakeManager();
	FakeManager(const FakeManager &) = delete;
	FakeManager &operator=(const FakeManager &) = delete;

	/* Sends text to every client, unasked. */
	void say(const std::string &text);

	/* Answers for scripts: ok with fields, an error, and what a manager in good order says. */
	static Reply ok(const Request &request, nlohmann::json fields = nlohmann::json::object());
	static Reply error(const Request &request, const std::string &name);
	static Reply agree(const Request &request);

private:
	struct Client {
		Fd socket;
		std::string text; /* received, not a whole line yet */
		std::vector<Fd> files;
	};

	void run();
	bool serve(Client &client);

	std::string path_;
	Script script_;
	Fd listener_, stop_;
	std::mutex lock_; /* clients_ */
	std::vector<Client> clients_;
	std::thread thread_;
};

/* A path for a socket below a directory of its own, removed at the end. */
class TemporarySocket {
public:
	TemporarySocket();
	~TemporarySocket();
	[[nodiscard]] const std::string &path() const { return path_; }

private:
	std::string directory_, path_;
};

} // namespace cxlkv
