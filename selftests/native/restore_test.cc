/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Restores that go wrong, wait, are cut off or asked for twice. */
#include "lib/arena_fixture.h"

#include <csetjmp>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <sys/socket.h>
#include <sys/wait.h>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

sigjmp_buf after_sigbus;

bool touch_is_sigbus(const std::atomic<uint64_t> *at)
{
	struct sigaction old, action = {};
	action.sa_handler = [](int) { siglongjmp(after_sigbus, 1); };
	sigaction(SIGBUS, &action, &old);
	bool got = sigsetjmp(after_sigbus, 1);
	if (!got)
		at->load();
	sigaction(SIGBUS, &old, nullptr);
	return got;
}

/* Flips one bit in every copy of the block's first word that the file holds. */
uint32_t flip_bit(const std::string &path, uint32_t block, uint32_t round)
{
	Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
	uint64_t want = ArenaClient::pattern(block, round, 0), have;
	uint32_t nr = 0;

	for (off_t at = 0; pread(fd.get(), &have, 8, at) == 8; at += 4096) {
		if (have != want)
			continue;
		have ^= 1ull << 33;
		nr += pwrite(fd.get(), &have, 8, at) == 8;
	}
	return nr;
}

size_t nr_open_files()
{
	size_t nr = 0;
	for (int fd = 0; fd < 1024; fd++)
		nr += fcntl(fd, F_GETFD) >= 0;
	return nr;
}

bool maps_memory_of_arena()
{
	std::ifstream maps("/proc/self/maps");
	for (std::string line; std::getline(maps, line);)
		if (line.find("memfd:memory") != std::string::npos)
			return true;
	return false;
}

class Restore : public ArenaTest {};

TEST_F(Restore, BitFlipIsALostBlockAndNeverOtherBytes)
{
	make(0, 8, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 8).nr_done, 8u);
	ASSERT_EQ(flip_bit(server->path(), 3, 1), 1u);
	ASSERT_EQ(flip_bit(server->path(), 5, 1), 1u);

	EXPECT_TRUE(touch_is_sigbus(client->block64(3)));
	EXPECT_EQ(client->state(3), CXL_KV_LOST);
	EXPECT_EQ(errno_of_system_call(client->block64(3) + 512), EFAULT);
	Outcome out = call(Kind::Fetch, 4, 4);
	EXPECT_EQ(out.error, EIO);
	EXPECT_EQ(out.block, 5u);
	EXPECT_EQ(call(Kind::Fetch, 0, 8).block, 3u);
	FaultStats stats = server->stats();
	EXPECT_EQ(stats.nr_lost, 2u);
	EXPECT_EQ(stats.store.nr_checksum_failures, 2u);
	EXPECT_EQ(arena->bytes.lost, 2u * bytes);
	for (uint32_t block : {0u, 1u, 2u, 4u, 6u, 7u})
		EXPECT_EQ(client->nr_wrong(block, 1), 0u) << block;
	EXPECT_TRUE(touch_is_sigbus(client->block64(3))); /* still */

	/* Recomputed by the client, the block is as good as any. */
	ASSERT_EQ(call(Kind::Make, 3, 1).error, 0);
	EXPECT_EQ(client->block64(3)[100].load(), 0u);
	client->fill(3, 2);
	ASSERT_EQ(call(Kind::Drop, 5, 1).error, 0);
	EXPECT_EQ(client->block64(5)[100].load(), 0u);
	client->fill(5, 2);
	ASSERT_EQ(call(Kind::Spill, 0, 8).nr_done, 8u);
	EXPECT_EQ(client->nr_wrong(3, 2), 0u);
	EXPECT_EQ(client->nr_wrong(5, 2), 0u);
}

TEST_F(Restore, DeviceErrorIsALostBlock)
{
	make(0, 2, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 2).nr_done, 2u);
	server->io().fail([](const IoRequest &io) -> std::optional<int> {
		if (io.op == IoRequest::Op::Read)
			return -EIO;
		return std::nullopt;
	});
	EXPECT_EQ(call(Kind::Fetch, 0, 1).error, EIO);
	server->io().fail(nullptr);
	EXPECT_TRUE(touch_is_sigbus(client->block64(0)));
	EXPECT_EQ(client->nr_wrong(1, 1), 0u);
}

/* A signal makes the kernel report a blocked fault again; each report must be harmless. */
TEST_F(Restore, DuplicateEventsAreHarmless)
{
	make(0, 4, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 4).nr_done, 4u);
	uint64_t before = server->stats().nr_faults_missing;
	server->io().hold(false, true);
	struct sigaction old, action = {};
	action.sa_handler = [](int) {};
	sigaction(SIGUSR1, &action, &old);
	std::atomic<uint32_t> wrong = 1;
	std::thread reader([&] { wrong = client->nr_wrong(1, 1); });
	ASSERT_TRUE(eventually([&] { return server->io().nr_held(IoRequest::Op::Read) == 1; }));
	EXPECT_TRUE(eventually([&] {
		pthread_kill(reader.native_handle(), SIGUSR1);
		return server->stats().nr_faults_missing >= before + 20;
	}));
	EXPECT_EQ(server->io().nr_held(IoRequest::Op::Read), 1u);
	server->io().release();
	reader.join();
	sigaction(SIGUSR1, &old, nullptr);
	EXPECT_EQ(wrong, 0u);
	/* The reader goes on before the server has told of it. */
	EXPECT_TRUE(eventually([&] { return server->stats().nr_restored > 0; }));
	EXPECT_EQ(server->stats().nr_restored, 1u);
}

TEST_F(Restore, PrefetchMergesWithADemandRead)
{
	make(0, 48, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 48).nr_done, 48u);
	server->io().hold(false, true);
	auto prefetch = post(Kind::Prefetch, 0, 48);
	ASSERT_TRUE(eventually([&] { return server->io().nr_held(IoRequest::Op::Read) == 3; }));
	auto fetch = post(Kind::Fetch, 10, 30);
	std::thread reader([&] { EXPECT_EQ(client->nr_wrong(40, 1), 0u); });
	ASSERT_TRUE(eventually([&] { return server->stats().nr_faults_missing > 0; }));
	EXPECT_EQ(server->io().nr_held(IoRequest::Op::Read), 3u); /* nobody reads twice */
	server->io().release();
	reader.join();
	ASSERT_TRUE(eventually([&] { return prefetch->done && fetch->done; }));
	EXPECT_EQ(prefetch->outcome.nr_done, 48u);
	EXPECT_EQ(fetch->outcome.nr_done, 30u);
	EXPECT_EQ(server->stats().nr_restored, 48u);
}

TEST_F(Restore, ForkedChildHasNoArenaAndHarmsNothing)
{
	make(0, 4, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 4).nr_done, 4u);
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		client->block64(0)->load();
		_exit(0);
	}
	int status;
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	EXPECT_EQ(client->resident_bytes(), 0u);
	for (uint32_t block = 0; block < 4; block++)
		EXPECT_EQ(client->nr_wrong(block, 1), 0u);
}

/* In a process of its own: makes an arena, sends it, and touches block 0 when told. */
[[noreturn]] void be_a_client(int socket)
{
	auto client = ArenaClient::create(small_geometry(64));
	char byte;
	if (!client || !(*client)->send(socket) || recv(socket, &byte, 1, 0) != 1)
		_exit(1);
	for (uint32_t block = 0; block < 8; block++)
		(*client)->fill(block, 9);
	if (send(socket, &byte, 1, MSG_NOSIGNAL) != 1 || recv(socket, &byte, 1, 0) != 1)
		_exit(1);
	(*client)->block64(0)->load(); /* blocks */
	_exit(0);
}

TEST_F(Restore, ClientKilledInMidRestore)
{
	make(0, 4, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 4).nr_done, 4u);
	uint64_t used = server->stats().store.used_bytes;
	size_t files = nr_open_files();

	int pair[2];
	ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid_t pid = fork();
	if (pid == 0)
		be_a_client(pair[1]);
	Fd ours(pair[0]);
	::close(pair[1]);
	auto received = ArenaClient::receive(ours.get());
	ASSERT_TRUE(received) << received.error().what;
	auto other = Arena::create(small_geometry(64), std::move(received->first),
				   {.number = 2,
				    .key = 88,
				    .pid = pid,
				    .client_base = received->second,
				    .ring_entries = ArenaClient::ring_entries,
				    .name = "victim"});
	ASSERT_TRUE(other) << other.error().what;
	ASSERT_EQ(server->call(Kind::Attach, *other).error, 0);
	char byte = 0;
	ASSERT_EQ(send(ours.get(), &byte, 1, 0), 1);
	ASSERT_EQ(recv(ours.get(), &byte, 1, 0), 1);
	ASSERT_EQ(server->call(Kind::Spill, *other, {{2, 0, 8}}).nr_done, 8u);
	server->io().hold(false, true);
	ASSERT_EQ(send(ours.get(), &byte, 1, 0), 1);
	ASSERT_TRUE(eventually([&] { return server->io().nr_held(IoRequest::Op::Read) == 1; }));

	kill(pid, SIGKILL);
	int status;
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_TRUE(WIFSIGNALED(status));
	server->io().release();
	for (uint32_t block = 0; block < 4; block++)
		EXPECT_EQ(client->nr_wrong(block, 1), 0u); /* the others are served */
	EXPECT_EQ(server->call(Kind::Spill, *other, {{2, 8, 8}}).nr_done, 0u);
	EXPECT_EQ(server->call(Kind::Detach, *other).error, 0);
	EXPECT_EQ(server->stats().store.used_bytes, used);
	EXPECT_TRUE(eventually([&] { return other->use_count() == 1; }));
	other->reset();
	ours.reset();
	EXPECT_EQ(nr_open_files(), files);
	client.reset();
	server.reset();
	arena.reset();
	EXPECT_FALSE(maps_memory_of_arena());
}

TEST_F(Restore, NoRoomIsBusyAtTheDeadlineAndLeavesNothingHalfDone)
{
	begin({.server = {.hot_limit_bytes = 16 * bytes}});
	make(0, 16, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 8).nr_done, 8u);
	make(16, 4, 1);

	EXPECT_EQ(call(Kind::Prefetch, 0, 8).error, EBUSY); /* 12 of 16 are used */
	EXPECT_EQ(call(Kind::Fetch, 0, 8, 50).error, EBUSY);
	EXPECT_EQ(client->resident_bytes(), 12u * bytes);
	EXPECT_EQ(call(Kind::Make, 20, 5, 50).error, EBUSY);
	EXPECT_EQ(client->state(20), CXL_KV_EMPTY);
	EXPECT_EQ(call(Kind::Make, 20, 40).error, EBUSY); /* can never fit: at once */
	EXPECT_EQ(server->stats().wanted.bytes, 0u);
	EXPECT_EQ(client->nr_wrong(0, 1), 0u); /* a fault does not wait for room */
}

TEST_F(Restore, WaitingRequestsGetRoomInOrder)
{
	std::atomic<int> asked = 0;
	begin({.server = {.hot_limit_bytes = 16 * bytes}, .want_room = [&] { asked++; }});
	make(0, 16, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 8).nr_done, 8u);
	make(16, 8, 1);

	auto big = post(Kind::Fetch, 0, 8);
	auto small = post(Kind::Make, 30, 1);
	ASSERT_TRUE(eventually([&] { return server->stats().wanted.bytes == 9 * bytes; }));
	EXPECT_EQ(asked, 2);
	ASSERT_EQ(call(Kind::Spill, 16, 4).nr_done, 4u);
	/* Now there is room for the small one, and for another that comes now; but not yet for the
	 * first. */
	auto late = post(Kind::Make, 31, 1);
	ASSERT_TRUE(eventually(
		[&] { return server->stats().wanted.bytes == 10 * bytes || late->done; }));
	EXPECT_FALSE(big->done || small->done || late->done);
	ASSERT_EQ(call(Kind::Spill, 20, 4).nr_done, 4u);
	ASSERT_TRUE(eventually([&] { return big->done.load(); }));
	EXPECT_EQ(big->outcome.error, 0);
	EXPECT_EQ(big->outcome.nr_done, 8u);
	EXPECT_FALSE(small->done);
	ASSERT_EQ(call(Kind::Drop, 8, 1).error, 0);
	ASSERT_TRUE(eventually([&] { return small->done.load(); }));
	EXPECT_EQ(small->outcome.error, 0);
	EXPECT_FALSE(late->done);
	EXPECT_LE(client->resident_bytes(), 16u * bytes);
	ASSERT_EQ(call(Kind::Drop, 9, 1).error, 0);
	EXPECT_TRUE(eventually([&] { return late->done.load(); }));
}

TEST_F(Restore, WhatIsInUseDoesNotWaitBehindAWake)
{
	begin({.server = {.hot_limit_bytes = 16 * bytes}});
	make(0, 16, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 8).nr_done, 8u);
	make(16, 8, 1);

	auto wake = post_wake(0, 8);
	ASSERT_TRUE(eventually([&] { return server->stats().wanted.waking_bytes == 8 * bytes; }));
	auto first = post(Kind::Make, 30, 2);
	auto other_wake = post_wake(0, 1);
	ASSERT_TRUE(eventually([&] { return server->stats().wanted.waking_bytes == 9 * bytes; }));
	ASSERT_EQ(server->stats().wanted.bytes, 2u * bytes);
	/* Room that is too little for the wake in front; of the wakes none overtakes another. */
	ASSERT_EQ(call(Kind::Spill, 16, 4).nr_done, 4u);
	ASSERT_TRUE(eventually([&] { return first->done.load(); }));
	EXPECT_EQ(first->outcome.error, 0);
	auto late = post(Kind::Make, 32, 1); /* nor who comes now */
	ASSERT_TRUE(eventually([&] { return late->done.load(); }));
	EXPECT_FALSE(wake->done || other_wake->done);
	ASSERT_EQ(call(Kind::Spill, 20, 4).nr_done, 4u);
	ASSERT_EQ(call(Kind::Drop, 8, 3).error, 0);
	ASSERT_TRUE(eventually([&] { return wake->done && other_wake->done; }));
	EXPECT_EQ(wake->outcome.nr_done, 8u);
}

TEST_F(Restore, DeadlineOfAnAdmittedFetchGivesItsReservationBack)
{
	begin({.server = {.hot_limit_bytes = 64 * bytes, .max_restore_bytes = 16 * bytes}});
	make(0, 64, 1);
	ASSERT_EQ(call(Kind::Spill, 0, 64).nr_done, 64u);
	server->io().hold(false, true);
	EXPECT_EQ(call(Kind::Fetch, 0, 64, 100).error, EBUSY);
	EXPECT_EQ(server->io().nr_held(IoRequest::Op::Read), 1u); /* the rest was never read */
	EXPECT_EQ(client->state(63), CXL_KV_COLD);
	EXPECT_EQ(call(Kind::Make, 0, 64).error, 0); /* cold blocks are made already */
	server->io().release();
	EXPECT_TRUE(eventually([&] { return client->resident_bytes() == 16u * bytes; }));
	EXPECT_EQ(call(Kind::Fetch, 0, 64, 5000).error, 0);
	for (uint32_t block = 0; block < 64; block++)
		ASSERT_EQ(client->nr_wrong(block, 1), 0u);
}

TEST_F(Restore, StopEndsWaitingRequests)
{
	begin({.server = {.hot_limit_bytes = 4 * bytes}});
	make(0, 4, 1);
	auto waits = post(Kind::Make, 4, 4);
	ASSERT_TRUE(eventually([&] { return server->stats().wanted.bytes == 4 * bytes; }));
	server.reset();
	EXPECT_TRUE(waits->done);
	EXPECT_EQ(waits->outcome.error, ECANCELED);
}

} // namespace
