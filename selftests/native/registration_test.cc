// SPDX-License-Identifier: LGPL-2.1-or-later
/* Arenas that leave cxl-kvd again while it still takes them in. */
#include "lib/arena_client.h"
#include "lib/daemon_process.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

using namespace cxlkv;

namespace {

/* All in one message, with the files of an arena. */
bool send_with_files(int fd, std::string text, const ArenaFiles &files)
{
	const int fds[] = {files.memory.get(), files.uffd.get(), files.table.get(),
			   files.ring.get()};
	alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
	iovec iov{text.data(), text.size()};
	msghdr message{};

	message.msg_iov = &iov;
	message.msg_iovlen = 1;
	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	return sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

Fd connect_to(const DaemonProcess &daemon)
{
	Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	sockaddr_un address{};
	address.sun_family = AF_UNIX;
	daemon.socket().copy(address.sun_path, sizeof(address.sun_path) - 1);
	EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
	return fd;
}

std::string register_line(const test::ArenaClient &client)
{
	const Geometry &g = client.geometry;
	return fmt::format(
		R"({{"id":1,"op":"register","ring_entries":{},"base":"{}","geometry":{{"nr_slots":1,"nr_layers":1,)"
		R"("nr_kv_heads":1,"head_dim":{},"elem_bytes":{},"tokens_per_block":{},"tokens_per_slot":{},)"
		R"("block_bytes":{}}}}})"
		"\n",
		test::ArenaClient::ring_entries, reinterpret_cast<uint64_t>(client.base()),
		g.head_dim, g.elem_bytes, g.tokens_per_block, g.tokens_per_slot, g.block_bytes);
}

/* What has come when nr lines are there, or when no more comes. */
std::string read_answers(int fd, long nr)
{
	std::string answers;
	pollfd in{fd, POLLIN, 0};

	while (std::ranges::count(answers, '\n') < nr && poll(&in, 1, 20000) == 1) {
		char data[4096];
		ssize_t n = recv(fd, data, sizeof(data), 0);
		if (n <= 0)
			break;
		answers.append(data, static_cast<size_t>(n));
	}
	return answers;
}

TEST(Registration, AnArenaThatIsGoneBeforeItIsServedLeavesNothing)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	DaemonProcess daemon({"HOT__LIMIT=4MiB", "COLD__SIZE=32MiB"});
	daemon.start();
	Fd fd = connect_to(daemon);

	/* So many blocks that the second line is read while the I/O thread still goes through them.
	 */
	auto client = test::ArenaClient::create(test::small_geometry(1 << 18, 1, 4096));
	ASSERT_TRUE(client) << client.error().what;
	std::string lines = register_line(**client) + R"({"id":2,"op":"unregister","arena":1})"
						      "\n";
	ASSERT_TRUE(send_with_files(fd.get(), lines, (*client)->own_files()));

	std::string answers = read_answers(fd.get(), 2);
	/* Answered with success, it would be in the policy's books for ever. */
	EXPECT_NE(answers.find("\"error\":\"ESRCH\",\"id\":1"), std::string::npos)
		<< answers << daemon.log();
	EXPECT_NE(answers.find("\"id\":2,\"ok\":true"), std::string::npos) << answers;
}

TEST(Registration, AnArenaWhoseBooksWouldOutgrowTheTiersIsRefused)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	DaemonProcess daemon({"HOT__LIMIT=4MiB", "COLD__SIZE=32MiB"});
	daemon.start();
	Fd fd = connect_to(daemon);
	auto client = test::ArenaClient::create(test::small_geometry(1 << 21, 1, 4096));
	ASSERT_TRUE(client) << client.error().what;
	ASSERT_TRUE(send_with_files(fd.get(), register_line(**client), (*client)->own_files()));

	std::string answers = read_answers(fd.get(), 1);
	EXPECT_NE(answers.find("\"error\":\"ENOMEM\""), std::string::npos)
		<< answers << daemon.log();
	EXPECT_NE(answers.find("2097152 blocks"), std::string::npos) << answers;
}

} // namespace
