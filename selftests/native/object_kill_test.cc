/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client that dies at each call of the library, with everything it has open:
 * the daemon and the other clients go on, and all that was its own comes back.
 */
#include "lib/object_client.h"

#include <chrono>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace cxlkv::test {

namespace {

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
		cxl_kv *kv = nullptr;
		cxl_kv_ns *ns = nullptr;
		options.size = sizeof(options);
		options.socket_path = socket_.c_str();
		options.log = [](void *, const char *) {};

		call([&] { return cxl_kv_open(&options, &kv); });
		call([&] { return cxl_kv_ns_open(kv, &ns_options, nullptr, 0, &ns); });
		stores(kv, ns);
		about_keys(ns);
		loads(kv, ns);
		call([&] { return cxl_kv_ns_reset(ns); });
		call([&] {
			cxl_kv_ns_close(ns);
			return 0;
		});
		cxl_kv_close(kv);
	}

private:
	void call(const std::function<int()> &what)
	{
		what();
		if (last_-- == 0)
			raise(SIGKILL);
	}

	void job(cxl_kv_ns *ns, const cxl_kv_key &k, iovec *iov, bool load, uint32_t flags = 0)
	{
		const cxl_kv_transfer transfer = {k, 0, iov, 1};
		cxl_kv_job job{};
		job.size = sizeof(job);
		job.flags = flags;
		job.transfers = &transfer;
		job.nr = 1;
		call([&] {
			return load ? cxl_kv_submit_load(ns, &job, nullptr)
				    : cxl_kv_submit_store(ns, &job, nullptr);
		});
	}

	void stores(cxl_kv *kv, cxl_kv_ns *ns)
	{
		const auto reserved = keys(100, 4);
		int fd = memfd_create("buffer", MFD_CLOEXEC);
		if (ftruncate(fd, 1 << 20))
			_exit(2);
		void *at = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		cxl_kv_buffer *buffer = nullptr;
		iovec direct = {at, kObjectBytes}, staged = {bytes_.data(), bytes_.size()};
		cxl_kv_completion done[4];

		call([&] { return cxl_kv_register_buffer(kv, fd, 0, at, 1 << 20, &buffer); });
		call([&] { return cxl_kv_reserve(ns, reserved.data(), 4, 600000, nullptr); });
		job(ns, key(50), &direct, false);
		job(ns, key(51), &staged, false);
		job(ns, reserved[0], &direct, false, CXL_KV_JOB_NO_COMMIT);
		job(ns, reserved[1], &staged, false, CXL_KV_JOB_NO_COMMIT);
		call([&] { return cxl_kv_drain(kv, CXL_KV_STORE, 60000); });
		call([&] { return cxl_kv_poll(kv, CXL_KV_STORE, done, 4); });
		call([&] { return cxl_kv_commit(ns, reserved.data(), 1, nullptr); });
		call([&] { return cxl_kv_abort(ns, &reserved[2], 1, nullptr); });
		job(ns, key(52), &direct, false);
		call([&] { return cxl_kv_unregister_buffer(buffer); });
	}

	void about_keys(cxl_kv_ns *ns)
	{
		const auto some = keys(0, 10);
		std::vector<cxl_kv_lookup_result> found(10);
		cxl_kv_object_event events[16];

		call([&] { return cxl_kv_lookup(ns, some.data(), 10, found.data()); });
		call([&] { return cxl_kv_lock(ns, some.data(), 10, 9, 600000, nullptr); });
		call([&] { return cxl_kv_unlock(ns, some.data(), 5, 9, nullptr); });
		call([&] { return cxl_kv_touch(ns, some.data(), 10, nullptr); });
		call([&] { return cxl_kv_set_priority(ns, some.data(), 1, 10, nullptr); });
		call([&] { return cxl_kv_pin_keys(ns, some.data(), 1, 1, nullptr); });
		call([&] { return cxl_kv_events(ns, events, 16, nullptr); });
		const auto doomed = keys(50, 3);
		call([&] { return cxl_kv_delete(ns, doomed.data(), 3, nullptr); });
	}

	void loads(cxl_kv *kv, cxl_kv_ns *ns)
	{
		const auto never = keys(200, 1);
		iovec staged = {bytes_.data(), bytes_.size()};
		uint64_t id = 0;
		const cxl_kv_transfer transfer = {never[0], 0, &staged, 1};
		cxl_kv_job waits{};

		job(ns, key(1), &staged, true);
		call([&] { return cxl_kv_reserve(ns, never.data(), 1, 600000, nullptr); });
		waits.size = sizeof(waits);
		waits.transfers = &transfer;
		waits.nr = 1;
		call([&] { return cxl_kv_submit_load(ns, &waits, &id); });
		call([&] { return cxl_kv_cancel(kv, CXL_KV_LOAD, id); });
		job(ns, never[0], &staged, true); /* waits when it dies */
	}

	const std::string socket_;
	int last_;
	Bytes bytes_ = Bytes(kObjectBytes);
};

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
		pid_t child = fork();
		if (!child) {
			Victim(daemon.socket(), nr_kills).run();
			_exit(0);
		}
		int status = 0;
		ASSERT_EQ(waitpid(child, &status, 0), child);
		killed = WIFSIGNALED(status);
		ASSERT_TRUE(killed || WEXITSTATUS(status) == 0);
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
	}
	EXPECT_GT(nr_kills, 25);
	EXPECT_EQ(client.store(mine), std::vector<int32_t>(10, 0));
	EXPECT_EQ(client.load_one(key(0)), 0);
}

} // namespace

} // namespace cxlkv::test
