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
	const int fds[] = {files.memory.get(), files.uffd.get(), files.table.get(), files.ring.get()};
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

TEST(Registration, AnArenaThatIsGoneBeforeItIsServedLeavesNothing)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	DaemonProcess daemon({"HOT__LIMIT=4MiB", "COLD__SIZE=32MiB"});
	daemon.start();
	Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	sockaddr_un address{};
	address.sun_family = AF_UNIX;
	daemon.socket().copy(address.sun_path, sizeof(address.sun_path) - 1);
	ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);

	/* So many blocks that the second line is read while the I/O thread still goes through them. */
	const Geometry g = test::small_geometry(1 << 18, 1, 4096);
	auto client = test::ArenaClient::create(g);
	ASSERT_TRUE(client) << client.error().what;
	std::string lines = fmt::format(
		R"({{"id":1,"op":"register","ring_entries":{},"base":"{}","geometry":{{"nr_slots":1,"nr_layers":1,)"
		R"("nr_kv_heads":1,"head_dim":{},"elem_bytes":{},"tokens_per_block":{},"tokens_per_slot":{},)"
		R"("block_bytes":{}}}}})" "\n" R"({{"id":2,"op":"unregister","arena":1}})" "\n",
		test::ArenaClient::ring_entries, reinterpret_cast<uint64_t>((*client)->base()), g.head_dim,
		g.elem_bytes, g.tokens_per_block, g.tokens_per_slot, g.block_bytes);
	ASSERT_TRUE(send_with_files(fd.get(), lines, (*client)->own_files()));

	std::string answers;
	pollfd in{fd.get(), POLLIN, 0};
	while (std::ranges::count(answers, '\n') < 2 && poll(&in, 1, 20000) == 1) {
		char data[4096];
		ssize_t n = recv(fd.get(), data, sizeof(data), 0);
		ASSERT_GT(n, 0) << answers << daemon.log();
		answers.append(data, static_cast<size_t>(n));
	}
	/* Answered with success, it would be in the policy's books for ever. */
	EXPECT_NE(answers.find("\"error\":\"ESRCH\",\"id\":1"), std::string::npos) << answers << daemon.log();
	EXPECT_NE(answers.find("\"id\":2,\"ok\":true"), std::string::npos) << answers;
}

} // namespace
