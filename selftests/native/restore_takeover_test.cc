/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The server's process is killed with -9 and another takes the arena over. The
 * test process is the client and keeps the files, as the library or the module
 * does.
 */
#include "lib/arena_fixture.h"

#include <csignal>
#include <future>
#include <sys/socket.h>
#include <sys/wait.h>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

/*
 * The doomed server: makes blocks 0..31, spills 0..23, then stands still with
 * the event of a fault on block 0 read and block 24 half spilled.
 */
[[noreturn]] void serve_until_killed(const ArenaClient &client, const std::string &path, int socket)
{
	auto next = [socket] {
		char byte = 0;
		if (send(socket, &byte, 1, MSG_NOSIGNAL) != 1 || recv(socket, &byte, 1, 0) != 1)
			_exit(1);
	};
	auto arena = client.arena(1, 77);
	auto server = TestServer::start({.path = path});
	if (!arena || !server || (*server)->call(Request::Kind::Attach, *arena).error ||
	    (*server)->call(Request::Kind::Make, *arena, {{1, 0, 32}}).error)
		_exit(1);
	next(); /* the client fills */
	if ((*server)->call(Request::Kind::Spill, *arena, {{1, 0, 24}}).nr_done != 24)
		_exit(1);
	(*server)->io().hold(true, true);
	(*server)->post(Request::Kind::Spill, *arena, {{1, 24, 1}}, 0, {});
	if (!eventually([&] { return (*server)->io().nr_held(IoRequest::Op::Write) > 0; }))
		_exit(1);
	next(); /* the client touches block 0 */
	if (!eventually([&] { return (*server)->io().nr_held(IoRequest::Op::Read) > 0; }))
		_exit(1);
	next();
	_exit(1); /* not reached: killed */
}

class Takeover : public ArenaTest {
protected:
	void SetUp() override
	{
		auto made = ArenaClient::create(small_geometry(64));
		ASSERT_TRUE(made) << made.error().what;
		client = std::move(*made);
		path = new_spill_file();
		int pair[2];
		ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
		socket = Fd(pair[0]);
		pid = fork();
		if (pid == 0)
			serve_until_killed(*client, path, pair[1]);
		::close(pair[1]);
		wait_for_server();
		for (uint32_t block = 0; block < 32; block++)
			client->fill(block, 1);
		go_on();
		wait_for_server();
	}

	void TearDown() override
	{
		kill_server();
		server.reset();
		unlink(path.c_str());
	}

	void wait_for_server()
	{
		char byte;
		ASSERT_EQ(recv(socket.get(), &byte, 1, 0), 1);
	}
	void go_on()
	{
		char byte = 0;
		ASSERT_EQ(send(socket.get(), &byte, 1, MSG_NOSIGNAL), 1);
	}
	void kill_server()
	{
		if (pid <= 0)
			return;
		kill(pid, SIGKILL);
		waitpid(pid, nullptr, 0);
		pid = 0;
	}
	std::string path;
	Fd socket;
	pid_t pid = 0;
};

TEST_F(Takeover, BlockedThreadsGoOnAndEveryWordIsRight)
{
	client->lease(30);
	auto reader = std::async(std::launch::async, [&] { return client->nr_wrong(0, 1); });
	go_on();
	wait_for_server(); /* it has read the event */
	auto writer = std::async(std::launch::async, [&] { client->fill(24, 2); });
	ASSERT_TRUE(eventually([&] { return client->state(0) == CXL_KV_RESTORING; }));
	kill_server();
	EXPECT_EQ(reader.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);

	ASSERT_NO_FATAL_FAILURE(serve({.path = path}));
	EXPECT_EQ(reader.get(), 0u);
	writer.get();
	EXPECT_EQ(client->state(24), CXL_KV_RESIDENT);
	EXPECT_EQ(client->state(23), CXL_KV_COLD);
	EXPECT_EQ(client->state(40), CXL_KV_EMPTY);
	EXPECT_EQ(client->word(30) & CXL_KV_WORD_LEASES_MASK, CXL_KV_WORD_LEASES_ONE);
	EXPECT_EQ(server->call(Request::Kind::Spill, arena, {{1, 24, 8}}).nr_done, 7u);
	for (uint32_t block = 0; block < 32; block++)
		EXPECT_EQ(client->nr_wrong(block, block == 24 ? 2 : 1), 0u) << block;
	EXPECT_EQ(server->stats().nr_lost, 0u);
	EXPECT_EQ(client->block64(40)->load(), 0u);
}

/* The dead server had copied some pages of a block in, and the client had written one of them. */
TEST_F(Takeover, HalfFilledBlockKeepsItsPagesAndGetsTheOthers)
{
	kill_server();
	int memory = client->own_files().memory.get();
	uint64_t mine[512];
	for (uint32_t i = 0; i < 512; i++)
		mine[i] = ArenaClient::pattern(7, 2, 1024 + i);
	ASSERT_EQ(pwrite(memory, mine, 4096, 7 * 65536 + 8192), 4096);

	ASSERT_NO_FATAL_FAILURE(serve({.path = path}));
	EXPECT_EQ(server->call(Request::Kind::Fetch, arena, {{1, 7, 1}}, 5000).error, 0);
	uint32_t wrong = 0;
	for (uint32_t i = 0; i < 65536 / 8; i++)
		wrong += client->block64(7)[i].load() !=
			 ArenaClient::pattern(7, i / 512 == 2 ? 2 : 1, i);
	EXPECT_EQ(wrong, 0u);
	EXPECT_FALSE(client->word(7) & CXL_KV_WORD_CLEAN);
	EXPECT_EQ(server->call(Request::Kind::Spill, arena, {{1, 7, 1}}).nr_done, 1u);
	EXPECT_EQ(client->block64(7)[1024].load(), mine[0]);
}

TEST_F(Takeover, AnEmptySpillFileIsLossAndNotZeros)
{
	kill_server();
	std::string other = new_spill_file();
	ASSERT_NO_FATAL_FAILURE(serve({.path = other}));
	for (uint32_t block = 0; block < 24; block++)
		EXPECT_EQ(client->state(block), CXL_KV_LOST);
	EXPECT_EQ(server->call(Request::Kind::Fetch, arena, {{1, 3, 1}}).error, EIO);
	EXPECT_EQ(errno_of_system_call(client->block64(3)), EFAULT);
	EXPECT_EQ(server->stats().nr_lost, 24u);
	for (uint32_t block = 24; block < 32; block++)
		EXPECT_EQ(client->nr_wrong(block, 1), 0u);
	EXPECT_EQ(client->block64(50)->load(), 0u);
	server.reset();
	unlink(other.c_str());
}

/* It died with the daemon, or with the machine. */
TEST_F(Takeover, RecordsOfAClientThatDoesNotComeBackAreDropped)
{
	kill_server();
	server = *TestServer::start({.server = {.orphan_grace_ns = 1}, .path = path});
	EXPECT_TRUE(eventually([&] { return server->stats().store.nr_records == 0; }));

	/* It comes, too late: told, and never given zeros. */
	ASSERT_NO_FATAL_FAILURE(serve({.path = path}));
	EXPECT_EQ(client->state(3), CXL_KV_LOST);
	EXPECT_EQ(errno_of_system_call(client->block64(3)), EFAULT);
}

TEST_F(Takeover, ClientThatComesBackKeepsWhatIsCold)
{
	kill_server();
	auto other = ArenaClient::create(small_geometry(8));
	ASSERT_TRUE(other);
	auto others = (*other)->arena(2, 78);
	ASSERT_TRUE(others);
	ASSERT_NO_FATAL_FAILURE(serve({.path = path}));
	ASSERT_EQ(server->call(Kind::Attach, *others).error, 0);
	ASSERT_EQ(server->call(Kind::Make, *others, {{2, 0, 8}}).error, 0);
	ASSERT_EQ(server->call(Kind::Spill, *others, {{2, 0, 8}}).nr_done, 8u);
	ASSERT_EQ(server->stats().store.nr_records, 32u);

	ASSERT_NO_FATAL_FAILURE(serve({.server = {.orphan_grace_ns = 200'000'000}, .path = path}));
	ASSERT_TRUE(eventually([&] { return server->stats().store.nr_records == 24; }));
	EXPECT_EQ(server->call(Kind::Fetch, arena, {{1, 0, 24}}).error, 0);
	for (uint32_t block = 0; block < 24; block++)
		EXPECT_EQ(client->nr_wrong(block, 1), 0u) << block;
}

/* A planned stop: the client reads and writes what is in memory, and finds the rest afterwards. */
TEST_F(Takeover, PlannedStopAndStart)
{
	kill_server();
	ASSERT_NO_FATAL_FAILURE(serve({.path = path}));
	ASSERT_EQ(server->call(Request::Kind::Fetch, arena, {{1, 0, 8}}).error, 0);
	EXPECT_TRUE(client->word(2) & CXL_KV_WORD_CLEAN);
	server.reset();
	client->fill(2, 3); /* was write-protected; nobody would answer */
	ASSERT_NO_FATAL_FAILURE(serve({.path = path}));
	EXPECT_EQ(server->call(Request::Kind::Spill, arena, {{1, 0, 32}}).nr_done, 16u);
	for (uint32_t block = 0; block < 32; block++)
		EXPECT_EQ(client->nr_wrong(block, block == 2 ? 3 : 1), 0u) << block;
}

} // namespace
