/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A client in a process of its own, and cpusets to put processes in. */
#pragma once

#include "lib/arena_client.h"
#include "sys/uffd.h"

#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

namespace cxlkv::test {

/* A process of its own that writes all blocks of an arena and reads them back, again and again. */
class OtherClient {
public:
	explicit OtherClient(uint32_t nr_blocks)
	{
		int pair[2];
		EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
		socket_ = Fd(pair[0]);
		pid = fork();
		if (!pid) {
			socket_.reset();
			run(nr_blocks, pair[1]);
		}
		::close(pair[1]);
	}
	~OtherClient()
	{
		if (ended_)
			return;
		kill(pid, SIGKILL);
		waitpid(pid, nullptr, 0);
	}

	Result<std::shared_ptr<Arena>> arena(uint32_t nr_blocks)
	{
		auto received = ArenaClient::receive(socket_.get());
		if (!received)
			return received.error();
		return Arena::create(small_geometry(nr_blocks), std::move(received->first),
				     {.number = 1,
				      .key = 1,
				      .pid = pid,
				      .client_base = received->second,
				      .ring_entries = ArenaClient::ring_entries,
				      .name = "other"});
	}
	/* Its last round is over. Its exit status: 0 when no word was ever wrong. */
	int finish()
	{
		int status = -1;
		socket_.reset();
		waitpid(pid, &status, 0);
		ended_ = true;
		return status;
	}

	pid_t pid;

private:
	[[noreturn]] static void run(uint32_t nr_blocks, int socket)
	{
		auto made = ArenaClient::create(small_geometry(nr_blocks));
		if (!made)
			_exit(2);
		ArenaClient &client = **made;
		uint64_t nr_wrong = 0;
		if (uffd::zeropage(client.own_files().uffd.get(),
				   reinterpret_cast<uint64_t>(client.base()),
				   client.geometry.bytes()) ||
		    !client.send(socket))
			_exit(3);
		pollfd hangup{socket, 0, 0};
		for (uint32_t round = 1; poll(&hangup, 1, 0) == 0; round++) {
			for (uint32_t block = 0; block < nr_blocks; block++)
				client.fill(block, round);
			for (uint32_t block = 0; block < nr_blocks; block++)
				nr_wrong += client.nr_wrong(block, round);
		}
		_exit(nr_wrong ? 1 : 0);
	}

	Fd socket_;
	bool ended_ = false;
};

/* This process and its children may have memory on these nodes only, while it lives. */
class Cpuset {
public:
	explicit Cpuset(const char *nodes)
	{
		std::ofstream("/sys/fs/cgroup/cgroup.subtree_control") << "+cpuset";
		std::getline(std::ifstream("/proc/self/cgroup"), home_);
		home_ = "/sys/fs/cgroup" + home_.substr(home_.find("::") + 2);
		mkdir(path, 0755);
		std::ofstream mems(std::string(path) + "/cpuset.mems");
		mems << nodes << std::flush;
		EXPECT_TRUE(mems.good()) << "this kernel has no cpusets";
	}
	~Cpuset()
	{
		std::ofstream(home_ + "/cgroup.procs") << getpid() << std::flush;
		EXPECT_EQ(rmdir(path), 0);
	}
	static bool take(pid_t pid)
	{
		std::ofstream procs(std::string(path) + "/cgroup.procs");
		procs << pid << std::flush;
		return procs.good();
	}

private:
	static constexpr const char *path = "/sys/fs/cgroup/kv-mover";
	std::string home_;
};

} // namespace cxlkv::test
