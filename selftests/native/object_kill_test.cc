/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client that dies at each call of the library, with everything it has open:
 * the daemon and the other clients go on, and all that was its own comes back.
 */
#include "cli/control_client.h"
#include "lib/object_client.h"

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#define CALL(function, ...) call(#function, [&] { return function(__VA_ARGS__); })

namespace cxlkv::test {

namespace {

constexpr cxl_kv_geometry kGeometry{
	.nr_slots = 2,
	.nr_layers = 2,
	.nr_kv_heads = 1,
	.head_dim = 64,
	.elem_bytes = 4,
	.tokens_per_block = 128,
	.tokens_per_slot = 512,
	.block_bytes = 64 << 10,
};

/* What a client does, a call each: dies after the nth one. Returns when there are no more. */
class Victim {
public:
	Victim(std::string socket, int last) : socket_(std::move(socket)), last_(last) {}

	void run()
	{
		const auto id = identity();
		const cxl_kv_group groups[] = {{kGroup, kObjectBytes}};
		const cxl_kv_ns_options ns_options = {
			sizeof(ns_options), 0, "test", &id, groups, 1};
		cxl_kv_options options{};
		cxl_kv_ns *ns = nullptr;
		options.size = sizeof(options);
		options.socket_path = socket_.c_str();
		options.log = [](void *, const char *) {};

		CALL(cxl_kv_version);
		CALL(cxl_kv_open, &options, &kv_);
		CALL(cxl_kv_connected, kv_);
		cxl_kv_health health{};
		health.size = sizeof(health);
		CALL(cxl_kv_get_health, kv_, &health, 20000);
		arenas();
		CALL(cxl_kv_ns_open, kv_, &ns_options, nullptr, 0, &ns);
		stores(ns);
		about_keys(ns);
		tier(ns);
		loads(ns);
		CALL(cxl_kv_ns_reset, ns);
		CALL(cxl_kv_ns_close, ns);
		CALL(cxl_kv_close, kv_);
	}

	/* The functions that were called. */
	std::set<std::string> called;

private:
	template <typename What>
	std::invoke_result_t<const What &> call(const char *name, const What &what)
	{
		struct Die {
			Victim &victim;
			~Die()
			{
				if (victim.last_-- == 0)
					raise(SIGKILL);
			}
		} die{*this};
		called.insert(name);
		return what();
	}

	void job(cxl_kv_ns *ns, const cxl_kv_key &k, iovec *iov, bool load, uint32_t flags = 0)
	{
		const cxl_kv_transfer transfer = {k, 0, iov, 1};
		cxl_kv_job job{};
		job.size = sizeof(job);
		job.flags = flags;
		job.transfers = &transfer;
		job.nr = 1;
		if (load)
			CALL(cxl_kv_submit_load, ns, &job, nullptr);
		else
			CALL(cxl_kv_submit_store, ns, &job, nullptr);
	}

	void arenas()
	{
		const cxl_kv_range first{0, 0, 0, 2}, second{0, 1, 0, 2};
		cxl_kv_arena *arena = nullptr;
		cxl_kv_decide_args question{};
		cxl_kv_decision decision;
		uint64_t nr_hits;
		question.size = sizeof(question);
		question.tokens = 100;
		question.prefill_tokens_per_s = 1000;
		question.return_probability = 1;

		CALL(cxl_kv_arena_create, kv_, &kGeometry, nullptr, &arena);
		CALL(cxl_kv_session_open, arena, 0, nullptr);
		CALL(cxl_kv_make, arena, &first, 1, 20000);
		CALL(cxl_kv_make, arena, &second, 1, 20000);
		CALL(cxl_kv_arena_base, arena);
		memset(CALL(cxl_kv_block, arena, 0, 0, 0), 1, kGeometry.block_bytes);
		CALL(cxl_kv_block_word, arena, 0, 0, 0);
		CALL(cxl_kv_lease, arena, &first, 1, 20000, &nr_hits);
		CALL(cxl_kv_lease, arena, &second, 1, 20000, &nr_hits);
		CALL(cxl_kv_unlease, arena, &second, 1);
		hints(arena);
		CALL(cxl_kv_session_touch, arena, 0);
		CALL(cxl_kv_session_park, arena, 0);
		CALL(cxl_kv_session_prefetch, arena, 0, 100, 100);
		CALL(cxl_kv_session_wake, arena, 0, 20000, nullptr);
		CALL(cxl_kv_decide, arena, &question, &decision);
		CALL(cxl_kv_drop, arena, &second, 1);
		CALL(cxl_kv_session_open, arena, 1, nullptr);
		CALL(cxl_kv_session_close, arena, 1);
		CALL(cxl_kv_unlease, arena, &first, 1);
		CALL(cxl_kv_arena_destroy, arena);
		CALL(cxl_kv_arena_create, kv_, &kGeometry, nullptr, &arena); /* and it stays */
	}

	void hints(cxl_kv_arena *arena)
	{
		const cxl_kv_range range{0, 0, 0, 1};
		cxl_kv_hint hint{};
		hint.kind = CXL_KV_HINT_SCORE;
		hint.nr_blocks = 1;

		CALL(cxl_kv_send_hint, arena, &hint);
		CALL(cxl_kv_send_hints, arena, &hint, 1);
		CALL(cxl_kv_hint_score, arena, 0, 0, 0, 0.5F);
		CALL(cxl_kv_hint_position, arena, 0, 100);
		CALL(cxl_kv_seal, arena, &range);
		CALL(cxl_kv_pin, arena, &range, 50, 0);
	}

	void stores(cxl_kv_ns *ns)
	{
		const auto reserved = keys(100, 4);
		int fd = memfd_create("buffer", MFD_CLOEXEC);
		if (ftruncate(fd, 1 << 20))
			_exit(2);
		void *at = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		cxl_kv_buffer *buffer = nullptr;
		iovec direct = {at, kObjectBytes}, staged = {bytes_.data(), bytes_.size()};
		cxl_kv_completion done[4];

		CALL(cxl_kv_register_buffer, kv_, fd, 0, at, 1 << 20, &buffer);
		CALL(cxl_kv_event_fd, kv_, CXL_KV_STORE);
		CALL(cxl_kv_reserve, ns, reserved.data(), 4, 600000, nullptr);
		job(ns, key(50), &direct, false);
		job(ns, key(51), &staged, false);
		job(ns, reserved[0], &direct, false, CXL_KV_JOB_NO_COMMIT);
		job(ns, reserved[1], &staged, false, CXL_KV_JOB_NO_COMMIT);
		CALL(cxl_kv_drain, kv_, CXL_KV_STORE, 60000);
		CALL(cxl_kv_poll, kv_, CXL_KV_STORE, done, 4);
		CALL(cxl_kv_commit, ns, reserved.data(), 1, nullptr);
		CALL(cxl_kv_abort, ns, &reserved[2], 1, nullptr);
		job(ns, key(52), &direct, false);
		CALL(cxl_kv_unregister_buffer, buffer);
	}

	void about_keys(cxl_kv_ns *ns)
	{
		const auto some = keys(0, 10);
		const std::vector<float> scores(10, 0.5F);
		std::vector<cxl_kv_lookup_result> found(10);
		cxl_kv_object_event events[16];
		cxl_kv_ns_stats stats{};
		stats.size = sizeof(stats);

		CALL(cxl_kv_lookup, ns, some.data(), 10, found.data());
		CALL(cxl_kv_lookup_prefix, ns, some.data(), 10);
		CALL(cxl_kv_lock, ns, some.data(), 10, 9, 600000, nullptr);
		CALL(cxl_kv_unlock, ns, some.data(), 5, 9, nullptr);
		CALL(cxl_kv_touch, ns, some.data(), 10, nullptr);
		CALL(cxl_kv_score_keys, ns, some.data(), scores.data(), 10, nullptr);
		CALL(cxl_kv_set_priority, ns, some.data(), 1, 10, nullptr);
		CALL(cxl_kv_pin_keys, ns, some.data(), 1, 1, nullptr);
		CALL(cxl_kv_set_quota, ns, 1 << 30);
		CALL(cxl_kv_ns_get_stats, ns, &stats);
		CALL(cxl_kv_events, ns, events, 16, nullptr);
		const auto doomed = keys(50, 3);
		CALL(cxl_kv_delete, ns, doomed.data(), 3, nullptr);
	}

	/* Left open, with advice that nobody acknowledges. */
	void tier(cxl_kv_ns *ns)
	{
		const cxl_kv_tier_options options = {sizeof(options), 0, kObjectBytes, 0, 0};
		const auto held = keys(300, 3);
		cxl_kv_advice advice[3];
		cxl_kv_tier_stats stats{};
		stats.size = sizeof(stats);

		CALL(cxl_kv_tier_open, ns, &options);
		CALL(cxl_kv_tier_close, ns);
		CALL(cxl_kv_tier_open, ns, &options);
		CALL(cxl_kv_tier_report, ns, held.data(), 3, 1, nullptr);
		CALL(cxl_kv_advice_wait, ns, advice, 3, 20000);
		CALL(cxl_kv_advice_end, ns, advice[0].id, 1);
		CALL(cxl_kv_tier_get_stats, ns, &stats);
	}

	void loads(cxl_kv_ns *ns)
	{
		const auto never = keys(200, 1);
		iovec staged = {bytes_.data(), bytes_.size()};
		uint64_t id = 0;
		const cxl_kv_transfer transfer = {never[0], 0, &staged, 1};
		cxl_kv_job waits{};

		job(ns, key(1), &staged, true);
		CALL(cxl_kv_reserve, ns, never.data(), 1, 600000, nullptr);
		waits.size = sizeof(waits);
		waits.transfers = &transfer;
		waits.nr = 1;
		CALL(cxl_kv_submit_load, ns, &waits, &id);
		CALL(cxl_kv_cancel, kv_, CXL_KV_LOAD, id);
		job(ns, never[0], &staged, true); /* waits when it dies */
	}

	const std::string socket_;
	int last_;
	cxl_kv *kv_ = nullptr;
	Bytes bytes_ = Bytes(kObjectBytes);
};

/* Forks victims in a process of its own, which has no threads: made before the test has any. */
class Launcher {
public:
	explicit Launcher(const std::function<void(int)> &victim)
	{
		if (pipe(ask_) || pipe(answer_))
			throw std::runtime_error("no pipes");
		pid_ = fork();
		if (pid_)
			return;
		close(ask_[1]);
		for (int n; read(ask_[0], &n, sizeof(n)) == sizeof(n);) {
			int status = -1;
			pid_t child = fork();
			if (!child) {
				victim(n);
				_exit(0);
			}
			waitpid(child, &status, 0);
			if (write(answer_[1], &status, sizeof(status)) != sizeof(status))
				break;
		}
		_exit(0);
	}
	~Launcher()
	{
		for (int fd : {ask_[0], ask_[1], answer_[0], answer_[1]})
			close(fd);
		waitpid(pid_, nullptr, 0);
	}
	Launcher(const Launcher &) = delete;
	Launcher &operator=(const Launcher &) = delete;

	/* How the victim ended. */
	int run(int n) const
	{
		int status = -1;

		if (write(ask_[1], &n, sizeof(n)) != sizeof(n) ||
		    read(answer_[0], &status, sizeof(status)) != sizeof(status))
			throw std::runtime_error("the launcher is gone");
		return status;
	}

private:
	int ask_[2], answer_[2];
	pid_t pid_;
};

/* All that the library exports, by its map file; the folder of the tree is above the program's. */
std::set<std::string> exported()
{
	const char *const map = "daemon/client/libcxl_kv.map";
	auto folder = std::filesystem::canonical("/proc/self/exe").parent_path();
	std::set<std::string> names;

	while (!exists(folder / map) && folder.has_relative_path())
		folder = folder.parent_path();
	std::ifstream in(folder / map);
	for (std::string line; std::getline(in, line);)
		if (size_t at = line.find("\tcxl_kv_"); at != std::string::npos)
			names.insert(line.substr(at + 1, line.find(';') - at - 1));
	return names;
}

bool eventually(const std::function<bool()> &condition)
{
	using Clock = std::chrono::steady_clock;

	for (auto end = Clock::now() + std::chrono::seconds(30); Clock::now() < end;) {
		if (condition())
			return true;
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	return false;
}

TEST(ClientKilled, at_each_call_nothing_of_it_stays)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	DaemonProcess daemon{{"HOT__LIMIT=16MiB", "COLD__SIZE=64MiB", "OBJECTS__SIZE=16MiB"}};
	daemon.start();
	setenv("CXL_KV_SOCKET", daemon.socket().c_str(), 1);
	const Launcher launcher([&](int last) {
		Victim victim(daemon.socket(), last);
		victim.run();
		/* Those that were not called are told by name. */
		for (const std::string &name : exported())
			if (!victim.called.contains(name))
				std::cout << "# never called: " << name << std::endl;
		_exit(victim.called == exported() ? 0 : 3);
	});
	ObjectClient client(daemon.socket());
	const auto mine = keys(0, 10);
	std::vector<int32_t> results(10);
	int nr_kills = 0;
	auto stats = [&] {
		cxl_kv_ns_stats result{};
		result.size = sizeof(result);
		EXPECT_EQ(cxl_kv_ns_get_stats(client.ns, &result), 0);
		return result;
	};

	for (bool killed = true; killed; nr_kills += killed) {
		client.store(mine);
		const int status = launcher.run(nr_kills);
		killed = WIFSIGNALED(status);
		ASSERT_TRUE(killed || WEXITSTATUS(status) == 0) << "exit " << WEXITSTATUS(status);
		/* What it reserved falls, what it had stored is as good as anybody's. */
		ASSERT_TRUE(eventually([&] { return stats().nr_pending == 0; })) << nr_kills;
		ASSERT_EQ(client.load_one(key(0)), client.lookup(key(0)).found ? 0 : -ENOENT);
		/* Its locks fall: all can be deleted, and all room is free again. */
		ASSERT_TRUE(eventually([&] {
			cxl_kv_ns_reset(client.ns);
			return stats().pool_free_bytes == stats().pool_bytes;
		})) << "killed at call "
		    << nr_kills << "\n"
		    << daemon.log();
		/* Its arenas go, and with them their blocks. */
		ASSERT_TRUE(eventually([&] {
			nlohmann::json list, now;
			return !ask_daemon({{"op", "list"}}, list) && list["arenas"].size() == 1 &&
			       !ask_daemon({{"op", "status"}}, now) &&
			       number_at(now, "/tiers/hot/bytes") == 0 &&
			       number_at(now, "/objects/clients") == 1;
		})) << "killed at call "
		    << nr_kills << "\n"
		    << daemon.log();
	}
	EXPECT_GE(nr_kills, 70);
	EXPECT_EQ(client.store(mine), std::vector<int32_t>(10, 0));
	EXPECT_EQ(client.load_one(key(0)), 0);
}

/* It has the client's socket open, so nobody hangs up. */
TEST(ClientKilled, a_child_that_it_left_behind_keeps_nothing)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	DaemonProcess daemon{{"HOT__LIMIT=16MiB", "COLD__SIZE=64MiB", "OBJECTS__SIZE=16MiB"}};
	daemon.start();
	const cxl_kv_key locked = key(1);
	int pipe_fds[2];
	ASSERT_EQ(pipe(pipe_fds), 0);
	const Launcher launcher([&](int) {
		char byte;
		close(pipe_fds[1]);
		ObjectClient victim(daemon.socket());
		if (cxl_kv_lock(victim.ns, &locked, 1, 9, 600000, nullptr) < 0)
			_exit(2);
		if (!fork())
			_exit(static_cast<int>(read(pipe_fds[0], &byte, 1))); /* until we end it */
		raise(SIGKILL);
	});
	ObjectClient client(daemon.socket());
	ASSERT_EQ(client.store_one(locked), 0);
	const int status = launcher.run(0);
	ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
	EXPECT_TRUE(eventually([&] {
		int32_t result = 0;
		cxl_kv_delete(client.ns, &locked, 1, &result);
		return result == 0 || result == -ENOENT;
	})) << daemon.log();
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

} // namespace

} // namespace cxlkv::test
