// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Sessions against a real daemon, a test for each complaint that others got: see
 * the numbers beside the names.
 */
#include "cli/control_client.h"
#include "lib/daemon_fixture.h"

#include <fcntl.h>
#include <future>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace cxlkv;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

constexpr uint32_t nr_heads = 8, blocks_per_head = 8;

class SessionTest : public DaemonFixture {
protected:
	/* A slot is as large as hot. */
	void start(std::vector<std::string> more = {})
	{
		more.insert(more.end(),
			    {"HOT__LIMIT=4MiB", "COLD__SIZE=64MiB", "DAEMON__INTERVAL_MS=5"});
		DaemonFixture::start(wide_geometry, more);
	}

	static std::vector<cxl_kv_range> all_of(uint32_t slot, uint32_t nr)
	{
		std::vector<cxl_kv_range> ranges;
		for (uint32_t head = 0; head < nr_heads; head++)
			ranges.push_back({slot, head, 0, nr});
		return ranges;
	}

	/* A parked session of nr blocks a head. */
	void fill(uint32_t slot, uint32_t nr = blocks_per_head)
	{
		auto ranges = all_of(slot, nr);
		ASSERT_EQ(cxl_kv_session_open(arena_, slot, nullptr), 0);
		ASSERT_EQ(cxl_kv_make(arena_, ranges.data(), ranges.size(), timeout_ms), 0);
		for (uint32_t head = 0; head < nr_heads; head++)
			for (uint32_t b = 0; b < nr; b++)
				*static_cast<volatile uint64_t *>(cxl_kv_block(
					arena_, slot, head, b)) = slot * 1000 + head * 10 + b;
		ASSERT_EQ(cxl_kv_session_park(arena_, slot), 0);
	}

	uint32_t count(uint32_t slot, uint32_t states)
	{
		uint32_t nr = 0;
		for (uint32_t head = 0; head < nr_heads; head++)
			for (uint32_t b = 0; b < blocks_per_head; b++)
				nr += states >> (cxl_kv_block_word(arena_, slot, head, b) &
						 CXL_KV_WORD_STATE_MASK) &
				      1;
		return nr;
	}

	/* One wake of 40 blocks waits for room; how many of another one wait for their turn? */
	uint64_t wakes_behind_another(std::vector<std::string> bounds)
	{
		bounds.insert(bounds.end(),
			      {"SESSION__RESERVE_BLOCKS=0", "SESSION__IDLE_MS=60000"});
		start(bounds);
		for (uint32_t slot : {0, 2, 1})
			fill(slot, slot == 2 ? 1 : 5);
		auto leased = all_of(1, 5);
		EXPECT_EQ(cxl_kv_session_wake(arena_, 1, timeout_ms, nullptr), 0);
		EXPECT_EQ(cxl_kv_lease(arena_, leased.data(), leased.size(), timeout_ms, nullptr),
			  0);
		EXPECT_EQ(cxl_kv_session_park(arena_, 1), 0);
		auto wake = [this](uint32_t slot) {
			return cxl_kv_session_wake(arena_, slot, timeout_ms, nullptr);
		};
		auto first = std::async(std::launch::async, wake, 0);
		EXPECT_TRUE(
			eventually([] { return number_at(status(), "/sessions/active") == 1; }));
		/* Without a deadline it is answered when it is in the gate. */
		EXPECT_EQ(cxl_kv_session_wake(arena_, 2, 0, nullptr), 0);
		const uint64_t waiting = number_at(status(), "/wake/waiting");
		EXPECT_EQ(cxl_kv_unlease(arena_, leased.data(), leased.size()), 0);
		EXPECT_EQ(first.get(), 0);
		EXPECT_TRUE(eventually([] { return number_at(status(), "/wake/waiting") == 0; }));
		return waiting;
	}

	static json status()
	{
		json answer;
		EXPECT_EQ(ask_daemon({{"op", "status"}}, answer), 0);
		return answer;
	}
};

} // namespace

/* 15: counters of a tier stay right whatever way blocks leave it. */
TEST_F(SessionTest, Complaint15TierCountersEndAtZero)
{
	ASSERT_NO_FATAL_FAILURE(start());
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t slot = 0; slot < wide_geometry.nr_slots; slot++)
			ASSERT_NO_FATAL_FAILURE(fill(slot, 5));
		ASSERT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), 0);
		json now = status();
		EXPECT_EQ(number_at(now, "/tiers/hot/bytes") + number_at(now, "/tiers/cold/bytes"),
			  4u * 40 * wide_geometry.block_bytes);
		const cxl_kv_range some{0, 3, 1, 2};
		ASSERT_EQ(cxl_kv_drop(arena_, &some, 1), 0);
		for (uint32_t slot = 0; slot < wide_geometry.nr_slots; slot++)
			ASSERT_EQ(cxl_kv_session_close(arena_, slot), 0);
		now = status();
		for (const char *tier : {"hot", "warm", "cold"}) {
			EXPECT_EQ(
				number_at(now, (std::string("/tiers/") + tier + "/bytes").c_str()),
				0u)
				<< tier;
			EXPECT_EQ(number_at(now,
					    (std::string("/tenants/0/") + tier + "/bytes").c_str()),
				  0u)
				<< tier;
		}
		for (const char *state :
		     {"active", "idle", "parked_warm", "parked_cold", "dropped"})
			EXPECT_EQ(number_at(now, (std::string("/sessions/") + state).c_str()), 0u)
				<< state;
	}
}

/* 16: a wake that the disk fails ends, and the session can be computed again. */
TEST_F(SessionTest, Complaint16WakeFromABrokenDiskEndsAndRecomputeWorks)
{
	ASSERT_NO_FATAL_FAILURE(start());
	for (uint32_t slot = 0; slot < wide_geometry.nr_slots; slot++)
		ASSERT_NO_FATAL_FAILURE(fill(slot));
	ASSERT_TRUE(eventually([&] { return count(0, 1u << CXL_KV_COLD) == 64; }));
	/* Bits rot wherever the store has them. */
	int fd = ::open((daemon_->folder() + "/spill").c_str(), O_WRONLY);
	ASSERT_GE(fd, 0);
	const std::vector<char> rot(1 << 20, 0x5a);
	for (off_t at = 1 << 20; at < 64 << 20; at += 1 << 20)
		ASSERT_EQ(pwrite(fd, rot.data(), rot.size(), at), ssize_t{1 << 20});
	fsync(fd);
	::close(fd);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), -EIO);
	EXPECT_EQ(cxl_kv_session_close(arena_, 0), 0);
	ASSERT_NO_FATAL_FAILURE(fill(0)) << "computed again";
	EXPECT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), 0);
}

/* 17: of two wakes that do not fit together one waits, without a block, until there is room. */
TEST_F(SessionTest, Complaint17OfTwoWakesThatDoNotFitOneWaitsWithNothing)
{
	constexpr uint32_t nr = 3, whole = nr_heads * nr, leased = 2;
	ASSERT_NO_FATAL_FAILURE(start({"SESSION__RESERVE_BLOCKS=0", "SESSION__MAX_WAKE_PERMIL=1000",
				       "SESSION__IDLE_MS=60000"}));
	for (uint32_t slot = 0; slot < 3; slot++)
		ASSERT_NO_FATAL_FAILURE(fill(slot, nr));
	ASSERT_NO_FATAL_FAILURE(fill(3));
	for (uint32_t slot = 0; slot < 3; slot++)
		ASSERT_EQ(count(slot, 1u << CXL_KV_COLD), whole) << "slot 3 needs all memory";
	ASSERT_EQ(cxl_kv_session_close(arena_, 3), 0);
	/* 40 of 64 blocks stay free for two sessions of 24. */
	auto ranges = all_of(leased, nr);
	ASSERT_EQ(cxl_kv_session_wake(arena_, leased, timeout_ms, nullptr), 0);
	ASSERT_EQ(cxl_kv_lease(arena_, ranges.data(), ranges.size(), timeout_ms, nullptr), 0);
	ASSERT_EQ(cxl_kv_session_park(arena_, leased), 0);

	uint32_t retry_ms[2] = {};
	auto wake = [this, &retry_ms](uint32_t slot) {
		return cxl_kv_session_wake(arena_, slot, 3000, &retry_ms[slot]);
	};
	std::future<int> first = std::async(std::launch::async, wake, 0),
			 second = std::async(std::launch::async, wake, 1);
	auto done = [](std::future<int> &f) { return f.wait_for(0s) == std::future_status::ready; };
	uint32_t both_present = 0;
	while (!done(first) || !done(second))
		both_present +=
			count(0, 1u << CXL_KV_COLD) < whole && count(1, 1u << CXL_KV_COLD) < whole;
	EXPECT_EQ(both_present, 0u);
	const int rc = first.get(), other_rc = second.get();
	const uint32_t woken = rc == 0 ? 0 : 1, other = 1 - woken;
	EXPECT_EQ(std::max(rc, other_rc), 0);
	EXPECT_EQ(std::min(rc, other_rc), -EBUSY);
	EXPECT_GT(retry_ms[other], 0u);
	EXPECT_EQ(retry_ms[woken], 0u);
	EXPECT_EQ(count(woken, 1u << CXL_KV_RESIDENT), whole);
	EXPECT_EQ(count(other, 1u << CXL_KV_COLD), whole);
	ASSERT_EQ(cxl_kv_unlease(arena_, ranges.data(), ranges.size()), 0);
	EXPECT_EQ(cxl_kv_session_wake(arena_, other, timeout_ms, nullptr), 0);
	EXPECT_EQ(number_at(status(), "/wake/waiting"), 0u);
}

/* 17: a wake beside active sessions that need all memory is told so at once. */
TEST_F(SessionTest, Complaint17WakeBesideActiveSessionsThatNeedAllIsToldWhenToAskAgain)
{
	ASSERT_NO_FATAL_FAILURE(start({"SESSION__RESERVE_BLOCKS=0", "SESSION__IDLE_MS=60000"}));
	for (uint32_t slot = 0; slot < 3; slot++)
		ASSERT_NO_FATAL_FAILURE(fill(slot, 5)); /* 40 of 64 blocks */
	ASSERT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), 0);
	uint32_t retry_ms = 0;
	EXPECT_EQ(cxl_kv_session_wake(arena_, 1, timeout_ms, &retry_ms), -EBUSY);
	EXPECT_GT(retry_ms, 0u);
	EXPECT_EQ(count(0, 1u << CXL_KV_RESIDENT), 40u);
	ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 1, timeout_ms, nullptr), 0);
	EXPECT_EQ(count(1, 1u << CXL_KV_RESIDENT), 40u);
}

/* 17: nor does it keep from who is active what he can have meanwhile. */
TEST_F(SessionTest, Complaint17ActiveSessionMakesBlocksWhileAWakeWaitsForRoom)
{
	ASSERT_NO_FATAL_FAILURE(start({"SESSION__RESERVE_BLOCKS=0", "SESSION__IDLE_MS=60000"}));
	ASSERT_NO_FATAL_FAILURE(fill(0));
	ASSERT_NO_FATAL_FAILURE(fill(1, 5));
	auto leased = all_of(1, 5), more = all_of(2, 1);
	ASSERT_EQ(cxl_kv_session_wake(arena_, 1, timeout_ms, nullptr), 0);
	ASSERT_EQ(cxl_kv_lease(arena_, leased.data(), leased.size(), timeout_ms, nullptr), 0);
	ASSERT_EQ(cxl_kv_session_park(arena_, 1), 0);
	ASSERT_EQ(cxl_kv_session_open(arena_, 2, nullptr), 0);
	auto waits = std::async(std::launch::async, [this] {
		return cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr);
	});
	/* It is active when it has its turn; room for it there is not. */
	ASSERT_TRUE(eventually([] { return number_at(status(), "/sessions/active") == 2; }));
	EXPECT_EQ(cxl_kv_make(arena_, more.data(), more.size(), 1000), 0);
	ASSERT_EQ(waits.wait_for(0s), std::future_status::timeout);
	ASSERT_EQ(cxl_kv_session_close(arena_, 2), 0);
	ASSERT_EQ(cxl_kv_unlease(arena_, leased.data(), leased.size()), 0);
	EXPECT_EQ(waits.get(), 0);
}

/* 17: who waits behind others waits no longer than he said. */
TEST_F(SessionTest, Complaint17WakeEndsAtItsDeadlineWhateverItWaitsFor)
{
	ASSERT_NO_FATAL_FAILURE(start({"SESSION__MAX_WAKES=1", "SESSION__RESERVE_BLOCKS=0"}));
	for (uint32_t slot = 0; slot < 3; slot++)
		ASSERT_NO_FATAL_FAILURE(fill(slot, 5));
	ASSERT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), 0);
	auto leased = all_of(0, 5);
	ASSERT_EQ(cxl_kv_lease(arena_, leased.data(), leased.size(), timeout_ms, nullptr), 0);
	/* Parked, so that another may come in; leased, so that it finds no room. */
	ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
	auto begin = std::chrono::steady_clock::now();
	EXPECT_EQ(cxl_kv_session_wake(arena_, 1, 200, nullptr), -EBUSY);
	EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
	EXPECT_EQ(count(1, 1u << CXL_KV_RESTORING), 0u);
	ASSERT_EQ(cxl_kv_unlease(arena_, leased.data(), leased.size()), 0);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 1, timeout_ms, nullptr), 0);
}

TEST_F(SessionTest, AnActiveSessionKeepsRoomForItsNextBlocks)
{
	/* 24 of 64 blocks for each. */
	ASSERT_NO_FATAL_FAILURE(start({"SESSION__RESERVE_BLOCKS=3", "SESSION__IDLE_MS=60000"}));
	uint32_t retry_ms = 0;
	ASSERT_EQ(cxl_kv_session_open(arena_, 0, nullptr), 0);
	ASSERT_EQ(cxl_kv_session_open(arena_, 1, nullptr), 0);
	EXPECT_EQ(cxl_kv_session_open(arena_, 2, &retry_ms), -EBUSY);
	EXPECT_GT(retry_ms, 0u);
	for (uint32_t slot : {0, 1}) {
		auto next = all_of(slot, 3);
		EXPECT_EQ(cxl_kv_make(arena_, next.data(), next.size(), timeout_ms), 0);
	}
	for (uint32_t slot : {0, 1})
		ASSERT_EQ(cxl_kv_session_park(arena_, slot), 0);
	EXPECT_EQ(cxl_kv_session_open(arena_, 2, nullptr), 0);
}

TEST_F(SessionTest, WakesWithinTheBoundsDoNotWaitForEachOther)
{
	EXPECT_EQ(wakes_behind_another({"SESSION__MAX_WAKES=8", "SESSION__MAX_WAKE_PERMIL=1000"}),
		  0u);
}

TEST_F(SessionTest, WakesBeyondTheirNumberWaitForTheirTurn)
{
	EXPECT_EQ(wakes_behind_another({"SESSION__MAX_WAKES=1", "SESSION__MAX_WAKE_PERMIL=1000"}),
		  1u);
}

TEST_F(SessionTest, WakesBeyondTheirBytesWaitForTheirTurn)
{
	EXPECT_EQ(wakes_behind_another({"SESSION__MAX_WAKES=8", "SESSION__MAX_WAKE_PERMIL=1"}), 1u);
}

TEST_F(SessionTest, AWakeThatFindsNoRoomLeavesTheSessionAsItWas)
{
	ASSERT_NO_FATAL_FAILURE(start({"SESSION__RESERVE_BLOCKS=0", "SESSION__IDLE_MS=60000"}));
	auto leased = all_of(1, 5);
	ASSERT_NO_FATAL_FAILURE(fill(0, 5));
	ASSERT_NO_FATAL_FAILURE(fill(1, 5));
	ASSERT_EQ(cxl_kv_session_wake(arena_, 1, timeout_ms, nullptr), 0);
	ASSERT_EQ(cxl_kv_lease(arena_, leased.data(), leased.size(), timeout_ms, nullptr), 0);
	ASSERT_EQ(cxl_kv_session_park(arena_, 1), 0);
	for (uint64_t active : {0, 1}) {
		EXPECT_EQ(cxl_kv_session_wake(arena_, 0, 200, nullptr), -EBUSY);
		EXPECT_EQ(number_at(status(), "/sessions/active"), active);
		ASSERT_EQ(cxl_kv_session_touch(arena_, 0), 0);
	}
}

/* 20: a tier that only mirrors the one above is said so. */
TEST_F(SessionTest, Complaint20AColdTierSmallerThanMemoryIsWarnedOf)
{
	ASSERT_NO_FATAL_FAILURE(start());
	EXPECT_EQ(status()["warnings"].dump().find("cold tier is smaller"), std::string::npos);
	DaemonProcess small({"HOT__LIMIT=32MiB", "COLD__SIZE=24MiB"});
	small.start();
	setenv("CXL_KV_SOCKET", small.socket().c_str(), 1);
	EXPECT_NE(status()["warnings"].dump().find("cold tier is smaller"), std::string::npos);
}

TEST_F(SessionTest, SilentSessionIsDroppedAndSaysSo)
{
	ASSERT_NO_FATAL_FAILURE(start({"SESSION__IDLE_MS=40", "SESSION__RESUME_MS=10",
				       "SESSION__WARM_MS=0", "SESSION__COLD_MS=80",
				       "SESSION__DROP_MS=400", "SESSION__MIN_RESIDENCY_MS=0"}));
	ASSERT_NO_FATAL_FAILURE(fill(0, 2));
	/* Memory is nearly empty: its age alone sends it away. */
	EXPECT_TRUE(eventually([&] { return count(0, 1u << CXL_KV_COLD) == 16; }));
	EXPECT_TRUE(eventually([&] { return count(0, 1u << CXL_KV_LOST) == 16; }));
	EXPECT_EQ(number_at(status(), "/sessions/nr_dropped"), 1u);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), -EIO) << "recompute";
	EXPECT_EQ(cxl_kv_session_close(arena_, 0), 0);
	ASSERT_NO_FATAL_FAILURE(fill(0, 2));
}

TEST_F(SessionTest, TouchMakesASessionActive)
{
	ASSERT_NO_FATAL_FAILURE(start({"SESSION__IDLE_MS=60000"}));
	EXPECT_EQ(cxl_kv_session_touch(arena_, 0), -ENOENT);
	EXPECT_EQ(cxl_kv_session_touch(arena_, wide_geometry.nr_slots), -EINVAL);
	ASSERT_NO_FATAL_FAILURE(fill(0, 1));
	ASSERT_EQ(number_at(status(), "/sessions/active"), 0u);
	EXPECT_EQ(cxl_kv_session_touch(arena_, 0), 0);
	EXPECT_EQ(number_at(status(), "/sessions/active"), 1u);
}

TEST_F(SessionTest, HintsFromBeforeItWasParkedDoNotMakeASessionActive)
{
	DaemonFixture::start(wide_geometry,
			     {"HOT__LIMIT=4MiB", "COLD__SIZE=64MiB", "DAEMON__INTERVAL_MS=200"});
	fill(0, 1);
	fill(1, 1);
	for (uint32_t head = 0; head < nr_heads; head++)
		EXPECT_EQ(cxl_kv_hint_score(arena_, 0, head, 0, 0.5f), 0);
	ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
	/* Later ones do, and when these were seen the others were too. */
	EXPECT_EQ(cxl_kv_hint_score(arena_, 1, 0, 0, 0.5f), 0);
	ASSERT_TRUE(eventually([&] { return number_at(status(), "/sessions/active") > 0; }));
	EXPECT_EQ(number_at(status(), "/sessions/active"), 1u);
	EXPECT_EQ(number_at(status(), "/sessions/idle"), 1u);
}

TEST_F(SessionTest, TenantIsWhoItMayBe)
{
	ASSERT_NO_FATAL_FAILURE(start({"TENANT_RED__HOT=1MiB", "TENANT_BLUE__UIDS=[4242]"}));
	cxl_kv_options with = options();
	cxl_kv *kv = nullptr;
	with.socket_path = daemon_->socket().c_str();
	with.tenant = "green";
	EXPECT_EQ(cxl_kv_open(&with, &kv), -EACCES);
	with.tenant = "blue"; /* for user 4242 alone */
	EXPECT_EQ(cxl_kv_open(&with, &kv), -EACCES);
	with.tenant = "red";
	ASSERT_EQ(cxl_kv_open(&with, &kv), 0) << messages();
	cxl_kv_arena *arena = nullptr;
	ASSERT_EQ(cxl_kv_arena_create(kv, &wide_geometry, nullptr, &arena), 0);
	auto two_mib = all_of(0, 4);
	EXPECT_EQ(cxl_kv_make(arena, two_mib.data(), two_mib.size(), timeout_ms), -EBUSY)
		<< "more than the quota, and nothing to wait for";
	auto one_mib = all_of(0, 2);
	EXPECT_EQ(cxl_kv_make(arena, one_mib.data(), one_mib.size(), timeout_ms), 0);
	json now = status();
	uint64_t red = 0;
	for (const json &tenant : now["tenants"])
		if (text_at(tenant, "/name") == "red")
			red = number_at(tenant, "/hot/bytes");
	EXPECT_EQ(red, 1u << 20);
	cxl_kv_close(kv);
}
