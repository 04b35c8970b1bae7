/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A cxl-kvd of a test's own: its binary beside the test's, its socket and spill file in a folder.
 */
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace cxlkv {

class DaemonProcess {
public:
	/* "HOT__LIMIT=4MiB": keys in the form of the environment, without CXL_KV_. */
	explicit DaemonProcess(std::vector<std::string> settings);
	~DaemonProcess();
	DaemonProcess(const DaemonProcess &) = delete;
	DaemonProcess &operator=(const DaemonProcess &) = delete;

	/* Returns when it listens; throws with its log where it does not. It is killed when the
	 * calling thread ends. */
	void start();
	/* SIGKILL, and waits for the end. */
	void kill();
	/* SIGTERM, and waits for the orderly end. */
	void terminate();
	void signal(int number) const;
	/* How many files it may have open from now on. */
	void limit_files(uint64_t nr) const;
	[[nodiscard]] bool runs() const;
	[[nodiscard]] const std::string &socket() const { return socket_; }
	[[nodiscard]] const std::string &folder() const { return folder_; }
	[[nodiscard]] std::string log() const;

private:
	void end(int signal);
	void check_log() const;

	std::string folder_, socket_;
	std::vector<std::string> environment_;
	pid_t pid_ = -1;
};

} // namespace cxlkv
