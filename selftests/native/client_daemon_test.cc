// SPDX-License-Identifier: LGPL-2.1-or-later
/* libcxl_kv and a real cxl-kvd: four times more blocks than memory, and daemons that die. */
#include "lib/daemon_fixture.h"

#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <grp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

using namespace cxlkv;

namespace {

constexpr uint32_t nr_heads = 8, blocks_per_head = 8;

class ClientDaemonTest : public DaemonFixture {
protected:
	void SetUp() override
	{
		start(wide_geometry,
		      {"HOT__LIMIT=4MiB", "COLD__SIZE=64MiB", "DAEMON__INTERVAL_MS=5"}, 30000);
	}

	static cxl_kv_range head_of(uint32_t slot, uint32_t head)
	{
		return {slot, head, 0, blocks_per_head};
	}

	static uint64_t pattern(uint32_t slot, uint32_t head, uint32_t block, uint64_t round)
	{
		return (round << 32) +
		       ((slot * nr_heads + head) * blocks_per_head + block) * 1000003ull;
	}

	void write(const cxl_kv_range &range, uint64_t round)
	{
		for (uint32_t block = range.block; block < range.block + range.nr_blocks; block++) {
			auto *words = static_cast<uint64_t *>(
				cxl_kv_block(arena_, range.slot, range.head, block));

			for (size_t i = 0; i < wide_geometry.block_bytes / 8; i++)
				words[i] = pattern(range.slot, range.head, block, round) + i;
		}
	}

	/* Words that are not as written. */
	uint64_t nr_wrong(const cxl_kv_range &range, uint64_t round)
	{
		uint64_t nr = 0;

		for (uint32_t block = range.block; block < range.block + range.nr_blocks; block++) {
			auto *words = static_cast<volatile uint64_t *>(
				cxl_kv_block(arena_, range.slot, range.head, block));

			for (size_t i = 0; i < wide_geometry.block_bytes / 8; i++)
				nr += words[i] != pattern(range.slot, range.head, block, round) + i;
		}
		return nr;
	}

	/* One session after the other, each parked when it is full. */
	void fill(uint64_t round)
	{
		for (uint32_t slot = 0; slot < wide_geometry.nr_slots; slot++) {
			ASSERT_EQ(cxl_kv_session_open(arena_, slot, nullptr), 0) << messages();
			for (uint32_t head = 0; head < nr_heads; head++) {
				const cxl_kv_range range = head_of(slot, head);

				ASSERT_EQ(cxl_kv_make(arena_, &range, 1, timeout_ms), 0)
					<< "head " << head;
				ASSERT_EQ(cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr), 0);
				write(range, round);
				ASSERT_EQ(cxl_kv_unlease(arena_, &range, 1), 0);
				ASSERT_EQ(cxl_kv_seal(arena_, &range), 0);
			}
			ASSERT_EQ(cxl_kv_session_park(arena_, slot), 0);
		}
	}

	cxl_kv_range first_cold()
	{
		for (uint32_t i = 0; i < 256; i++) {
			const cxl_kv_range range{i / 64, i / 8 % 8, i % 8, 1};

			if ((cxl_kv_block_word(arena_, range.slot, range.head, range.block) &
			     CXL_KV_WORD_STATE_MASK) == CXL_KV_COLD)
				return range;
		}
		throw std::runtime_error("no block is cold");
	}

	uint32_t count(cxl_kv_state state)
	{
		uint32_t nr = 0;

		for (uint32_t i = 0; i < wide_geometry.nr_slots * nr_heads * blocks_per_head; i++)
			nr += (cxl_kv_block_word(arena_, i / 64, i / 8 % 8, i % 8) &
			       CXL_KV_WORD_STATE_MASK) == state;
		return nr;
	}

	void check_all(uint64_t round)
	{
		for (uint32_t slot = 0; slot < wide_geometry.nr_slots; slot++) {
			for (uint32_t head = 0; head < nr_heads; head++) {
				const cxl_kv_range range = head_of(slot, head);

				ASSERT_EQ(cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr), 0)
					<< "slot " << slot;
				EXPECT_EQ(nr_wrong(range, round), 0u)
					<< "slot " << slot << " head " << head;
				ASSERT_EQ(cxl_kv_unlease(arena_, &range, 1), 0);
			}
		}
	}
};

TEST_F(ClientDaemonTest, MoreBlocksThanMemoryComeBackAsTheyWere)
{
	uint64_t nr_hits = 99;

	fill(1);
	EXPECT_GE(count(CXL_KV_COLD), 190u) << "256 blocks, room for 64";
	const cxl_kv_range first = head_of(first_cold().slot, first_cold().head);
	ASSERT_EQ(cxl_kv_lease(arena_, &first, 1, timeout_ms, &nr_hits), 0);
	EXPECT_LT(nr_hits, blocks_per_head);
	EXPECT_EQ(nr_wrong(first, 1), 0u);
	ASSERT_EQ(cxl_kv_lease(arena_, &first, 1, 0, &nr_hits), 0);
	EXPECT_EQ(nr_hits, blocks_per_head);
	ASSERT_EQ(cxl_kv_unlease(arena_, &first, 1), 0);
	ASSERT_EQ(cxl_kv_unlease(arena_, &first, 1), 0);
	check_all(1);
}

TEST_F(ClientDaemonTest, TouchWithoutALeaseBringsABlockBack)
{
	fill(1);
	for (uint32_t slot = 0; slot < wide_geometry.nr_slots; slot++)
		EXPECT_EQ(nr_wrong(head_of(slot, slot), 1), 0u);
}

TEST_F(ClientDaemonTest, LeasesEndAtTheirTimeLimit)
{
	DaemonProcess daemon({"HOT__LIMIT=1MiB", "COLD__SIZE=64MiB", "DAEMON__INTERVAL_MS=5",
			      "SESSION__LEASE_LIMIT_MS=90"});
	const cxl_kv_range one{0, 0, 3, 1}, others{0, 1, 0, blocks_per_head},
		more{0, 2, 0, blocks_per_head};
	auto leases = [&] {
		return (cxl_kv_block_word(arena_, 0, 0, 3) & CXL_KV_WORD_LEASES_MASK) >>
		       CXL_KV_WORD_LEASES_SHIFT;
	};

	daemon.start();
	cxl_kv_options with = options();
	with.socket_path = daemon.socket().c_str();
	cxl_kv_arena_destroy(std::exchange(arena_, nullptr));
	cxl_kv_close(std::exchange(kv_, nullptr));
	ASSERT_EQ(open(with), 0) << messages();
	ASSERT_EQ(cxl_kv_arena_create(kv_, &wide_geometry, nullptr, &arena_), 0) << messages();

	ASSERT_EQ(cxl_kv_session_open(arena_, 0, nullptr), 0);
	ASSERT_EQ(cxl_kv_make(arena_, &one, 1, timeout_ms), 0);
	write(one, 1);
	ASSERT_EQ(cxl_kv_lease(arena_, &one, 1, timeout_ms, nullptr), 0);
	ASSERT_EQ(cxl_kv_lease(arena_, &one, 1, timeout_ms, nullptr), 0);
	ASSERT_TRUE(eventually([&] { return leases() == 0; })) << daemon.log();
	/* Its block leaves as any other does, and comes back as it was. */
	ASSERT_EQ(cxl_kv_make(arena_, &others, 1, timeout_ms), 0);
	ASSERT_EQ(cxl_kv_make(arena_, &more, 1, timeout_ms), 0);
	ASSERT_TRUE(eventually([&] {
		return (cxl_kv_block_word(arena_, 0, 0, 3) & CXL_KV_WORD_STATE_MASK) == CXL_KV_COLD;
	}));
	EXPECT_EQ(nr_wrong(one, 1), 0u);

	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), 0) << "late";
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), 0) << "late";
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), -EINVAL) << "once too often";
	EXPECT_EQ(leases(), 0u);
	cxl_kv_arena_destroy(std::exchange(arena_, nullptr));
	cxl_kv_close(std::exchange(kv_, nullptr));
}

TEST_F(ClientDaemonTest, WakeBringsASessionBack)
{
	fill(1);
	ASSERT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), 0);
	uint32_t nr_resident = 0;
	for (uint32_t head = 0; head < nr_heads; head++)
		for (uint32_t block = 0; block < blocks_per_head; block++) {
			uint64_t state =
				cxl_kv_block_word(arena_, 0, head, block) & CXL_KV_WORD_STATE_MASK;
			nr_resident += state == CXL_KV_RESIDENT || state == CXL_KV_SPILLING;
		}
	/* The session is as large as hot may be: down to the low watermark, an extent of 16 blocks
	 * at a time, some may have left again. */
	EXPECT_GE(nr_resident, 64u * 9 / 10 - 16);
	/* It is active and as large as memory: nobody else comes in until it is parked. */
	uint32_t retry_ms = 0;
	EXPECT_EQ(cxl_kv_session_wake(arena_, 1, 0, &retry_ms), -EBUSY);
	EXPECT_GT(retry_ms, 0u);
	ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 1, 0, &retry_ms), 0);
	EXPECT_EQ(retry_ms, 0u);
	check_all(1);
}

TEST_F(ClientDaemonTest, SessionsOpenOnceAndCloseEmpty)
{
	const cxl_kv_range range = head_of(0, 0);

	ASSERT_EQ(cxl_kv_lease(arena_, &range, 1, 0, nullptr), -ENODATA);
	ASSERT_EQ(cxl_kv_session_open(arena_, 0, nullptr), 0);
	EXPECT_EQ(cxl_kv_session_open(arena_, 0, nullptr), -EBUSY);
	ASSERT_EQ(cxl_kv_make(arena_, &range, 1, timeout_ms), 0);
	ASSERT_EQ(cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr), 0);
	write(range, 1);
	EXPECT_EQ(cxl_kv_session_close(arena_, 0), -EBUSY) << "leased";
	EXPECT_EQ(cxl_kv_drop(arena_, &range, 1), -EBUSY);
	ASSERT_EQ(cxl_kv_unlease(arena_, &range, 1), 0);
	EXPECT_EQ(cxl_kv_session_close(arena_, 0), 0);
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 0, nullptr), -ENODATA);
	EXPECT_EQ(cxl_kv_session_open(arena_, 0, nullptr), 0);
	ASSERT_EQ(cxl_kv_make(arena_, &range, 1, timeout_ms), 0);
	EXPECT_EQ(*static_cast<uint64_t *>(cxl_kv_block(arena_, 0, 0, 0)), 0u)
		<< "another session's bytes";
}

TEST_F(ClientDaemonTest, NoRoomIsBusyAndLeavesNothing)
{
	fill(1);
	std::vector<cxl_kv_range> ranges;
	for (uint32_t slot = 0; slot < wide_geometry.nr_slots; slot++)
		for (uint32_t head = 0; head < nr_heads; head++)
			ranges.push_back(head_of(slot, head));
	EXPECT_EQ(cxl_kv_lease(arena_, ranges.data(), ranges.size(), 200, nullptr), -EBUSY);
	for (uint32_t i = 0; i < 256; i++)
		EXPECT_EQ(cxl_kv_block_word(arena_, i / 64, i / 8 % 8, i % 8) &
				  CXL_KV_WORD_LEASES_MASK,
			  0u);
	check_all(1);
}

TEST_F(ClientDaemonTest, KilledDaemonIsWaitedForAndTheNextHasEverything)
{
	fill(1);
	const cxl_kv_range cold = first_cold();
	daemon_->kill();
	auto touch = std::async(std::launch::async, [&] { return nr_wrong(cold, 1); });
	auto lease = std::async(std::launch::async, [&] {
		return cxl_kv_lease(arena_, &cold, 1, timeout_ms, nullptr);
	});
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	/* Still blocked: neither has got zeros or an error for want of a manager. */
	EXPECT_EQ(touch.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
	EXPECT_EQ(lease.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
	daemon_->start();
	EXPECT_EQ(touch.get(), 0u);
	EXPECT_EQ(lease.get(), 0);
	EXPECT_EQ(cxl_kv_unlease(arena_, &cold, 1), 0);
	check_all(1);
}

/* It is as large as memory: nobody is let in beside it. */
TEST_F(ClientDaemonTest, SessionsOfBeforeARestartCountForAdmission)
{
	auto lease_all = [this] {
		for (uint32_t head = 0; head < nr_heads; head++) {
			const cxl_kv_range range = head_of(0, head);

			ASSERT_EQ(cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr), 0);
			ASSERT_EQ(cxl_kv_unlease(arena_, &range, 1), 0);
		}
	};

	fill(1);
	ASSERT_EQ(cxl_kv_session_close(arena_, 3), 0);
	ASSERT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), 0);
	lease_all();
	EXPECT_EQ(cxl_kv_session_open(arena_, 3, nullptr), -EBUSY);
	daemon_->kill();
	daemon_->start();
	lease_all();
	ASSERT_EQ(cxl_kv_session_touch(arena_, 0), 0);
	/* Once the policy has heard of its blocks. */
	EXPECT_TRUE(eventually([this] {
		const int rc = cxl_kv_session_open(arena_, 3, nullptr);
		if (!rc)
			cxl_kv_session_close(arena_, 3);
		return rc == -EBUSY;
	}));
}

TEST_F(ClientDaemonTest, WorkGoesOnWhileDaemonsDie)
{
	std::atomic<bool> stop{false};
	std::atomic<int> nr_failed{0};
	std::atomic<uint64_t> wrong{0}, nr_rounds{0};
	std::vector<std::thread> workers;

	fill(0);
	for (uint32_t slot = 0; slot < 3; slot++)
		workers.emplace_back([&, slot] {
			for (uint64_t round = 1; !stop && !nr_failed; round++) {
				for (uint32_t head = 0; head < nr_heads; head++) {
					const cxl_kv_range range = head_of(slot, head);

					if (cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr)) {
						nr_failed++;
						break;
					}
					wrong += nr_wrong(range, round - 1);
					write(range, round);
					nr_failed += cxl_kv_unlease(arena_, &range, 1) != 0;
				}
				nr_rounds++;
			}
		});
	for (int i = 0; i < 3; i++) {
		uint64_t before = nr_rounds;

		EXPECT_TRUE(eventually([&] { return nr_rounds > before + 3 || nr_failed; }));
		daemon_->kill();
		daemon_->start();
	}
	uint64_t before = nr_rounds;
	EXPECT_TRUE(eventually([&] { return nr_rounds > before + 3 || nr_failed; }));
	stop = true;
	for (auto &worker : workers)
		worker.join();
	EXPECT_EQ(nr_failed, 0);
	EXPECT_EQ(wrong, 0u);
	for (uint32_t i = 0; i < 256; i++)
		EXPECT_EQ(cxl_kv_block_word(arena_, i / 64, i / 8 % 8, i % 8) &
				  CXL_KV_WORD_LEASES_MASK,
			  0u);
}

TEST_F(ClientDaemonTest, ArenaDestroyGivesMemoryAndSpillSpaceBack)
{
	for (int i = 0; i < 6; i++) {
		/* Together more than the spill file holds. */
		fill(1);
		cxl_kv_arena_destroy(std::exchange(arena_, nullptr));
		ASSERT_EQ(cxl_kv_arena_create(kv_, &wide_geometry, nullptr, &arena_), 0)
			<< messages();
	}
	EXPECT_EQ(count(CXL_KV_EMPTY), 256u);
}

/* Without the module everything here has the library as keeper of the files, with it the module. */
TEST_F(ClientDaemonTest, TheModuleKeepsArenasWhereItIsLoaded)
{
	Fd device{::open("/dev/cxl_kv", O_RDWR | O_CLOEXEC)};
	auto nr_kept = [&] {
		cxl_kv_info info{};

		info.size = sizeof(info);
		EXPECT_EQ(ioctl(device.get(), CXL_KV_IOC_INFO, &info), 0) << strerror(errno);
		return info.nr_arenas;
	};

	if (!device)
		GTEST_SKIP() << "the module is not loaded";
	EXPECT_EQ(nr_kept(), 1u);
	daemon_->kill();
	EXPECT_EQ(nr_kept(), 1u);
	daemon_->start();
	fill(1);
	cxl_kv_arena_destroy(std::exchange(arena_, nullptr));
	EXPECT_EQ(nr_kept(), 0u);
}

TEST_F(ClientDaemonTest, HintsArrive)
{
	auto program = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() /
		       "bin/cxl-kv";
	auto nr_arrived = [&] {
		std::unique_ptr<FILE, int (*)(FILE *)> out{
			popen((program.string() + " list -j").c_str(), "r"), pclose};
		std::string text(1 << 16, 0);

		text.resize(fread(text.data(), 1, text.size(), out.get()));
		auto list = nlohmann::json::parse(text, nullptr, false);
		return list.is_object() ? list["arenas"][0]["hints"].get<int>() : 0;
	};

	setenv("CXL_KV_SOCKET", daemon_->socket().c_str(), 1);
	for (int i = 0; i < 100; i++)
		ASSERT_EQ(cxl_kv_hint_position(arena_, 0, i), 0);
	EXPECT_TRUE(eventually([&] { return nr_arrived() == 100; })) << nr_arrived();
	daemon_->kill();
	daemon_->start();
	ASSERT_TRUE(eventually([&] { return cxl_kv_connected(kv_); }));
	for (int i = 0; i < 100; i++)
		ASSERT_EQ(cxl_kv_hint_position(arena_, 0, i), 0);
	EXPECT_TRUE(eventually([&] { return nr_arrived() >= 100; })) << nr_arrived();
	unsetenv("CXL_KV_SOCKET");
}

TEST_F(ClientDaemonTest, ExampleRuns)
{
	auto program = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() /
		       "examples/decode";

	setenv("CXL_KV_SOCKET", daemon_->socket().c_str(), 1);
	EXPECT_EQ(system((program.string() + " >/dev/null").c_str()), 0);
	unsetenv("CXL_KV_SOCKET");
}

TEST_F(ClientDaemonTest, UnprivilegedClientIsServed)
{
	int status = 0;

	if (access("/dev/userfaultfd", R_OK | W_OK))
		GTEST_SKIP() << "no /dev/userfaultfd";
	ASSERT_EQ(chmod(daemon_->socket().substr(0, daemon_->socket().rfind('/')).c_str(), 0755),
		  0);
	ASSERT_EQ(chmod(daemon_->socket().c_str(), 0666), 0);
	pid_t child = fork();
	if (!child) {
		cxl_kv_options with = options();
		const cxl_kv_range range = head_of(0, 0);
		cxl_kv *kv;
		cxl_kv_arena *arena;

		with.socket_path = daemon_->socket().c_str();
		with.log = nullptr;
		if (setgroups(0, nullptr) || setresgid(65534, 65534, 65534) ||
		    setresuid(65534, 65534, 65534))
			_exit(100);
		int rc = cxl_kv_open(&with, &kv);
		if (!rc)
			rc = cxl_kv_arena_create(kv, &wide_geometry, nullptr, &arena);
		if (!rc)
			rc = cxl_kv_make(arena, &range, 1, timeout_ms);
		if (!rc)
			rc = cxl_kv_lease(arena, &range, 1, timeout_ms, nullptr);
		if (!rc)
			memset(cxl_kv_block(arena, 0, 0, 0), 1, wide_geometry.block_bytes);
		_exit(-rc); /* without a good-bye */
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0) << strerror(WEXITSTATUS(status));
	fill(1);
	check_all(1);
}

} // namespace
