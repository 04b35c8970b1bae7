/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every state of a block's word that can be made to stand still, and everything that can happen to
 * a block in it: a row of the table each, run on the real server. The block has a neighbour on
 * either side, which goes with it on every way and must not notice.
 */
#include "lib/arena_fixture.h"

#include <csignal>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

constexpr uint32_t subject = 1, nr_blocks = 3;
using Kind = Request::Kind;

/* Those of the word, and Clean: RESIDENT with CLEAN. PUNCHING cannot be made to stand still. */
enum State { Empty, Resident, Spilling, Punching, Cold, Restoring, Lost, Clean };
const char *const state_names[] = {"Empty", "Resident",  "Spilling", "Punching",
				   "Cold",  "Restoring", "Lost",     "Clean"};
static_assert(static_cast<int>(Lost) == CXL_KV_LOST);

/* Requests from Make on. Kill: of the daemon; another follows. Fail: a fetch that cannot read. */
enum What { Read, Write, Lease, Unlease, Kill, Make, Drop, Fetch, Prefetch, Spill, Forget, Fail };
const char *const what_names[] = {"Read",      "Write", "Lease",  "LeaseThenUnlease",
				  "NewDaemon", "Make",  "Drop",   "Fetch",
				  "Prefetch",  "Spill", "Forget", "FailedFetch"};
constexpr Kind kinds[] = {Kind::Make,  Kind::Drop,   Kind::Fetch, Kind::Prefetch,
			  Kind::Spill, Kind::Forget, Kind::Fetch};

/* Contents: rounds of ArenaClient::pattern(), and two that are none. */
enum Has { Zeros, Older, Old, New, Newer, Error };

struct Row {
	State from;
	std::vector<What> what; /* each is a test */
	State then;
	Has has;
	int error = 0;      /* of what happens */
	bool waits = false; /* for the I/O that keeps the block in its state */
};
constexpr bool waits = true;

/*
 * Left out: leases of empty and lost blocks, which the library refuses without the daemon
 * (client_lease_test); DMA, of which only the lease and the write that a pin is are seen; failed
 * fetches of what is in memory or not there, which read nothing.
 */
const Row rows[] = {
	{Empty, {Read, Make}, Resident, Zeros},
	{Empty, {Write}, Resident, New},
	{Empty, {Drop, Prefetch, Spill, Forget, Kill}, Empty, Zeros},
	{Empty, {Fetch}, Empty, Zeros, ENODATA},

	{Resident, {Read, Lease, Unlease, Make, Fetch, Prefetch, Kill}, Resident, Old},
	{Resident, {Write}, Resident, New},
	{Resident, {Drop}, Empty, Zeros},
	{Resident, {Spill}, Cold, Old},
	{Resident, {Forget}, Lost, Error},

	{Clean, {Read, Lease, Unlease, Make, Fetch, Prefetch}, Clean, Old},
	{Clean, {Write}, Resident, New},
	{Clean, {Drop}, Empty, Zeros},
	{Clean, {Spill}, Cold, Old},
	{Clean, {Forget}, Lost, Error},
	{Clean, {Kill}, Resident, Old},

	{Spilling, {Read, Unlease, Make, Prefetch, Spill, Forget}, Cold, Old},
	{Spilling, {Write}, Resident, New},
	{Spilling, {Lease, Fetch, Kill}, Resident, Old},
	{Spilling, {Drop}, Empty, Zeros, 0, waits},

	{Cold, {Read, Lease, Unlease, Fetch, Prefetch}, Clean, Old},
	{Cold, {Write}, Resident, New},
	{Cold, {Make, Spill, Kill}, Cold, Old},
	{Cold, {Drop}, Empty, Zeros},
	{Cold, {Forget}, Lost, Error},
	{Cold, {Fail}, Lost, Error, EIO},

	{Restoring, {Read, Lease, Unlease, Fetch, Prefetch}, Clean, Old, 0, waits},
	{Restoring, {Write}, Resident, New, 0, waits},
	{Restoring, {Make, Spill, Forget}, Clean, Old},
	{Restoring, {Drop}, Empty, Zeros, 0, waits},
	{Restoring, {Kill}, Cold, Old},

	{Lost, {Read, Write}, Lost, Error, EFAULT},
	{Lost, {Make}, Resident, Zeros},
	{Lost, {Drop}, Empty, Zeros},
	{Lost, {Prefetch, Spill, Forget, Kill}, Lost, Error},
	{Lost, {Fetch}, Lost, Error, EIO},
};

/* One for each thing of each row. */
std::vector<Row> cases()
{
	std::vector<Row> all;

	for (const Row &row : rows) {
		for (What what : row.what) {
			all.push_back(row);
			all.back().what = {what};
		}
	}
	return all;
}

/* The first word by a system call, which says EFAULT where a plain store is SIGBUS. */
int write_all(const ArenaClient &client, Has round)
{
	uint64_t word = ArenaClient::pattern(subject, round, 0);
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return errno;
	Fd reader(ends[0]), writer(ends[1]);
	if (write(writer.get(), &word, 8) != 8 ||
	    read(reader.get(), client.block64(subject), 8) != 8)
		return errno;
	client.fill(subject, round);
	return 0;
}

/* Words of the block, or reads of it, that are not as they should be. */
uint32_t nr_wrong(const ArenaClient &client, uint32_t block, Has has)
{
	uint32_t nr = 0;

	if (int err = errno_of_system_call(client.block64(block)); err || has == Error)
		return err != (has == Error ? EFAULT : 0);
	if (has != Zeros)
		return client.nr_wrong(block, has);
	for (uint32_t i = 0; i < client.geometry.block_bytes / 8; i++)
		nr += client.block64(block)[i].load() != 0;
	return nr;
}

/* The last stretch into a state, which is the server's. done: of the request that stands still. */
bool stand(TestServer &server, const std::shared_ptr<Arena> &arena, State state,
	   std::function<void(const Outcome &)> done)
{
	const std::vector<Extent> all = {{1, 0, nr_blocks}}, one = {{1, subject, 1}};
	auto op = state == Restoring ? IoRequest::Op::Read : IoRequest::Op::Write;

	/* Held writes of an empty or lost block: the store has not noted yet that it is. */
	server.io().hold(state == Spilling || state == Empty || state == Lost, state == Restoring);
	if (state == Clean)
		return !server.call(Kind::Fetch, arena, all).error;
	if (state == Empty || state == Lost)
		return !server.call(state == Lost ? Kind::Forget : Kind::Drop, arena, one).error;
	if (state == Resident || state == Cold)
		return true;
	server.post(state == Spilling ? Kind::Spill : Kind::Fetch, arena, all, 0, std::move(done));
	/* What is held may be a write of the store's own. */
	return eventually([&] {
		return (arena->word(subject) & CXL_KV_WORD_STATE_MASK) == uint64_t{state} &&
		       server.io().nr_held(op) > 0;
	});
}

/* The doomed server: a process that stands still in the state until it is killed. */
[[noreturn]] void serve_until_killed(const ArenaClient &client, const std::string &path,
				     State state, int socket)
{
	char byte = 0;
	auto arena = client.arena(1, 77);
	auto server = TestServer::start({.path = path});

	if (!arena || !server || (*server)->call(Kind::Attach, *arena).error ||
	    !stand(**server, *arena, state, {}) || send(socket, &byte, 1, MSG_NOSIGNAL) != 1)
		_exit(1);
	recv(socket, &byte, 1, 0);
	_exit(1); /* only if the test died first */
}

class Transition : public ArenaTest, public testing::WithParamInterface<Row> {
protected:
	void SetUp() override
	{
		path = new_spill_file();
		begin({.path = path});
	}

	/* A thread that still waits is a failure, but no reason to wait for it. */
	void TearDown() override
	{
		if (server)
			server->io().release();
		if (access && !access->done) {
			thread.detach();
			(void)client.release();
		}
		if (thread.joinable())
			thread.join();
		server.reset();
		unlink(path.c_str());
	}

	[[nodiscard]] std::string now() const
	{
		uint64_t word = client->word(subject);
		std::string name = state_names[word & CXL_KV_WORD_STATE_MASK];

		if (!(word & CXL_KV_WORD_CLEAN))
			return name;
		return name == "Resident" ? "Clean" : name + ", called clean";
	}
	[[nodiscard]] uint64_t leases() const
	{
		return client->word(subject) & CXL_KV_WORD_LEASES_MASK;
	}
	/* The server has done all it can about what it was told before. */
	void settle() { ASSERT_EQ(server->call(Kind::Make, arena).error, 0); }

	/* On a thread of its own, which may wait for a page. */
	std::shared_ptr<Posted> on_thread(std::function<int()> accesses)
	{
		if (thread.joinable())
			thread.join();
		access = std::make_shared<Posted>();
		thread = std::thread([posted = access, accesses = std::move(accesses)] {
			posted->outcome.error = accesses();
			posted->done = true;
		});
		return access;
	}
	void expect_contents(Has has)
	{
		auto wrong = on_thread([raw = client.get(), has]() -> int {
			return nr_wrong(*raw, 0, Old) + nr_wrong(*raw, subject, has) +
			       nr_wrong(*raw, 2, Old);
		});
		ASSERT_TRUE(eventually([&] { return wrong->done.load(); }));
		EXPECT_EQ(wrong->outcome.error, 0) << "wrong words";
	}

	/* What comes first. The store gets a record of other bytes, which must never return. */
	void prepare(State state)
	{
		make(0, nr_blocks, Older);
		ASSERT_EQ(call(Kind::Spill, 0, nr_blocks).nr_done, nr_blocks);
		ASSERT_EQ(call(Kind::Fetch, 0, nr_blocks).error, 0);
		make(0, nr_blocks, Old);
		if (state == Clean || state == Cold || state == Restoring) {
			ASSERT_EQ(call(Kind::Spill, 0, nr_blocks).nr_done, nr_blocks);
		}
	}

	void replace_killed_server(State state)
	{
		int pair[2];
		ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
		Fd ours(pair[0]), theirs(pair[1]);
		char byte;

		server.reset();
		pid_t pid = fork();
		if (pid == 0) {
			ours.reset();
			serve_until_killed(*client, path, state, theirs.get());
		}
		theirs.reset();
		EXPECT_EQ(recv(ours.get(), &byte, 1, 0), 1);
		EXPECT_EQ(now(), state_names[state]);
		kill(pid, SIGKILL);
		waitpid(pid, nullptr, 0);

		serve({.path = path});
	}

	std::shared_ptr<Posted> begin_action(What what)
	{
		ArenaClient *raw = client.get();

		if (what == Read)
			return on_thread(
				[raw] { return errno_of_system_call(raw->block64(subject)); });
		if (what == Write)
			return on_thread([raw] { return write_all(*raw, New); });
		if (what == Fail)
			server->io().fail([](const IoRequest &) { return std::optional(-EIO); });
		if (what >= Make)
			return post(kinds[what - Make], subject, 1);
		client->lease(subject);
		auto state = client->state(subject);
		if (state != CXL_KV_RESIDENT && state != CXL_KV_SPILLING)
			return post(Kind::Fetch, subject, 1);
		if (what == Unlease)
			client->unlease(subject);
		auto leased = std::make_shared<Posted>();
		leased->done = true;
		return leased;
	}

	void act(const Row &row)
	{
		const What what = row.what[0];
		auto entered = std::make_shared<Posted>();
		entered->done = row.from != Spilling && row.from != Restoring;
		ASSERT_TRUE(stand(*server, arena, row.from, answer_of(entered)));
		ASSERT_EQ(now(), state_names[row.from]);
		uint64_t before = server->stats().nr_faults_missing;
		auto action = begin_action(what);

		if (row.waits) {
			ASSERT_TRUE(eventually([&] {
				return action != access ||
				       server->stats().nr_faults_missing > before;
			}));
			settle();
			EXPECT_FALSE(action->done);
		} else {
			ASSERT_TRUE(eventually([&] { return action->done.load(); }));
		}
		server->io().fail(nullptr);
		server->io().release();
		ASSERT_TRUE(eventually([&] { return action->done && entered->done; }));
		if (what == Unlease && leases())
			client->unlease(subject);
		EXPECT_EQ(action->outcome.error, row.error);
		EXPECT_EQ(entered->outcome.error, 0);
	}

	/* Out and in again. */
	void expect_round_trip(Has has)
	{
		ASSERT_EQ(call(Kind::Spill, 0, nr_blocks).nr_done, nr_blocks);
		EXPECT_EQ(client->resident_bytes(), 0u);
		ASSERT_EQ(call(Kind::Fetch, 0, nr_blocks).error, 0);
		expect_contents(has);
	}

	std::string path;
	std::thread thread;
	std::shared_ptr<Posted> access; /* of the thread */
};

TEST_P(Transition, Is)
{
	const Row &row = GetParam();
	const What what = row.what[0];

	ASSERT_NO_FATAL_FAILURE(prepare(row.from));
	if (what == Kill)
		ASSERT_NO_FATAL_FAILURE(replace_killed_server(row.from));
	else
		ASSERT_NO_FATAL_FAILURE(act(row));

	ASSERT_NO_FATAL_FAILURE(settle());
	EXPECT_EQ(now(), state_names[row.then]);
	EXPECT_EQ(leases(), what == Lease ? CXL_KV_WORD_LEASES_ONE : 0);
	ASSERT_NO_FATAL_FAILURE(expect_contents(row.has));
	/* By request as by touch. */
	EXPECT_EQ(call(Kind::Fetch, subject, 1).error, row.has == Error ? EIO : 0);
	ASSERT_NO_FATAL_FAILURE(expect_contents(row.has));

	/* Whatever it was, the block is as good as any other. */
	if (what == Lease)
		client->unlease(subject);
	bool gone = row.then == Empty || row.then == Lost;
	ASSERT_EQ(call(Kind::Make, subject, 1).error, 0);
	ASSERT_NO_FATAL_FAILURE(expect_round_trip(gone ? Zeros : row.has));
	auto wrote = on_thread([raw = client.get()] { return write_all(*raw, Newer); });
	ASSERT_TRUE(eventually([&] { return wrote->done.load(); }));
	ASSERT_NO_FATAL_FAILURE(expect_round_trip(Newer));
}

INSTANTIATE_TEST_SUITE_P(, Transition, testing::ValuesIn(cases()), [](const auto &one) {
	return std::string(state_names[one.param.from]) + "Then" + what_names[one.param.what[0]];
});

} // namespace
