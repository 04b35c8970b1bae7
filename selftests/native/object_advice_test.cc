/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An engine with a tier of its own, and the daemon that advises it; and how well the daemon is. */
#include "cli/control_client.h"
#include "lib/object_client.h"

#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

namespace cxlkv::test {

namespace {

class AdviceStream : public testing::Test {
protected:
	void SetUp() override
	{
		if (geteuid() != 0)
			GTEST_SKIP() << "needs root for userfaultfd and locked memory";
		daemon_.start();
		client_ = std::make_unique<ObjectClient>(daemon_.socket());
	}

	void TearDown() override
	{
		if (HasFailure())
			std::cout << "# " << daemon_.log();
	}

	/* Room for ten objects. */
	int open(uint32_t ack_ms = 20000)
	{
		const cxl_kv_tier_options options = {sizeof(options), ack_ms,
						     uint64_t{10} * kObjectBytes, 900, 700};
		return cxl_kv_tier_open(client_->ns, &options);
	}

	void report(const std::vector<cxl_kv_key> &which, int held = 1)
	{
		std::vector<int32_t> results(which.size(), 1);
		ASSERT_EQ(cxl_kv_tier_report(client_->ns, which.data(), which.size(), held,
					     results.data()),
			  0);
		EXPECT_EQ(results, std::vector<int32_t>(which.size(), 0));
	}

	std::vector<cxl_kv_advice> wait(uint32_t timeout_ms = 20000)
	{
		std::vector<cxl_kv_advice> advice(100);
		int nr = cxl_kv_advice_wait(client_->ns, advice.data(), advice.size(), timeout_ms);
		EXPECT_GE(nr, 0);
		advice.resize(static_cast<size_t>(std::max(nr, 0)));
		return advice;
	}

	cxl_kv_tier_stats stats()
	{
		cxl_kv_tier_stats result{};
		result.size = sizeof(result);
		EXPECT_EQ(cxl_kv_tier_get_stats(client_->ns, &result), 0);
		return result;
	}

	int32_t score(const cxl_kv_key &k, float mass)
	{
		int32_t result = 1;
		EXPECT_EQ(cxl_kv_score_keys(client_->ns, &k, &mass, 1, &result), 0);
		return result;
	}

	DaemonProcess daemon_{{"HOT__LIMIT=16MiB", "COLD__SIZE=64MiB", "OBJECTS__SIZE=32MiB"}};
	std::unique_ptr<ObjectClient> client_;
};

TEST_F(AdviceStream, FullTierIsToldWhatToDemoteAndAcknowledges)
{
	ASSERT_EQ(open(), 0);
	EXPECT_EQ(open(), -EBUSY);
	report(keys(0, 10));
	for (uint64_t i = 3; i < 10; i++)
		EXPECT_EQ(score(key(i), 0.9F), 0) << "it is in the engine's tier, if nowhere else";
	auto advice = wait();
	ASSERT_EQ(advice.size(), 3u);
	std::set<uint64_t> demoted;
	for (const cxl_kv_advice &a : advice) {
		uint64_t number;
		memcpy(&number, a.key.bytes, sizeof(number));
		demoted.insert(number);
		EXPECT_EQ(a.kind, uint32_t{CXL_KV_ADVICE_DEMOTE});
		EXPECT_EQ(a.key.group, kGroup);
	}
	EXPECT_EQ(demoted, (std::set<uint64_t>{0, 1, 2})) << "those that had no attention";
	EXPECT_EQ(cxl_kv_advice_end(client_->ns, advice[0].id, 1), 0);
	EXPECT_EQ(cxl_kv_advice_end(client_->ns, advice[0].id, 1), -ENOENT) << "once";
	EXPECT_EQ(cxl_kv_advice_end(client_->ns, advice[1].id, 0), 0);
	EXPECT_EQ(cxl_kv_advice_end(client_->ns, 12345, 1), -ENOENT);
	const auto now = stats();
	EXPECT_EQ(now.nr_blocks, 9u);
	EXPECT_EQ(now.bytes, 9u * kObjectBytes);
	EXPECT_EQ(now.nr_done, 1u);
	EXPECT_EQ(now.nr_refused, 1u);
	EXPECT_EQ(now.nr_expired, 0u);
}

TEST_F(AdviceStream, UnacknowledgedAdviceExpiresAndIsCounted)
{
	ASSERT_EQ(open(1), 0);
	report(keys(0, 10));
	const auto advice = wait();
	ASSERT_EQ(advice.size(), 3u);
	std::this_thread::sleep_for(std::chrono::milliseconds(2));
	EXPECT_EQ(cxl_kv_advice_end(client_->ns, advice[0].id, 1), -ENOENT) << "too late";
	EXPECT_EQ(stats().nr_expired, 3u);
	EXPECT_EQ(stats().nr_blocks, 10u);
	EXPECT_GE(wait().size(), 1u) << "the tier is as full as before";
}

TEST_F(AdviceStream, WhatIsUsedAndStoredIsToBePromoted)
{
	ASSERT_EQ(client_->store_one(key(1)), 0);
	ASSERT_EQ(open(), 0);
	EXPECT_EQ(score(key(2), 1), -ENOENT) << "it is nowhere";
	EXPECT_EQ(score(key(1), std::numeric_limits<float>::infinity()), 0) << "all of it";
	auto advice = wait();
	ASSERT_EQ(advice.size(), 1u);
	EXPECT_EQ(advice[0].kind, uint32_t{CXL_KV_ADVICE_PROMOTE});
	EXPECT_EQ(memcmp(advice[0].key.bytes, key(1).bytes, CXL_KV_KEY_BYTES), 0);
	EXPECT_EQ(client_->load_one(advice[0].key), 0);
	EXPECT_EQ(cxl_kv_advice_end(client_->ns, advice[0].id, 1), 0);
	EXPECT_EQ(stats().nr_blocks, 1u);
	report(keys(1, 1), 0);
	EXPECT_EQ(stats().bytes, 0u);
	EXPECT_TRUE(wait(0).empty());
}

TEST_F(AdviceStream, AWaitEndsWithItsTimeOrWithTheTier)
{
	EXPECT_EQ(cxl_kv_tier_close(client_->ns), -ENOENT);
	cxl_kv_advice one{};
	EXPECT_EQ(cxl_kv_advice_wait(client_->ns, &one, 1, 1), -ENOENT);
	ASSERT_EQ(open(), 0);
	EXPECT_EQ(cxl_kv_advice_wait(client_->ns, &one, 1, 20), 0);
	std::thread closer([&] {
		/* As soon as the other one waits. */
		cxl_kv_advice mine{};
		while (cxl_kv_advice_wait(client_->ns, &mine, 1, 0) != -EBUSY)
			std::this_thread::yield();
		EXPECT_EQ(cxl_kv_tier_close(client_->ns), 0);
	});
	int rc = 0;
	while ((rc = cxl_kv_advice_wait(client_->ns, &one, 1, 60000)) == -EBUSY)
		;
	EXPECT_EQ(rc, -ENOENT);
	closer.join();
}

TEST_F(AdviceStream, NonsenseIsRefused)
{
	cxl_kv_tier_options options = {sizeof(options), 0, 0, 0, 0};
	const float none = std::numeric_limits<float>::quiet_NaN();
	const auto k = key(1);
	EXPECT_EQ(cxl_kv_tier_open(client_->ns, &options), -EINVAL) << "of no bytes";
	options.bytes = 1 << 20;
	options.low_permil = 960;
	EXPECT_EQ(cxl_kv_tier_open(client_->ns, &options), -EINVAL) << "low above high";
	options.low_permil = 0;
	options.high_permil = 1001;
	EXPECT_EQ(cxl_kv_tier_open(client_->ns, &options), -EINVAL);
	options.size++;
	EXPECT_EQ(cxl_kv_tier_open(client_->ns, &options), -E2BIG);
	EXPECT_EQ(cxl_kv_score_keys(client_->ns, &k, &none, 1, nullptr), -EINVAL);
	EXPECT_EQ(cxl_kv_score_keys(client_->ns, &k, nullptr, 1, nullptr), -EINVAL);
	int32_t result = 0;
	EXPECT_EQ(cxl_kv_tier_report(client_->ns, &k, 1, 1, &result), 0);
	EXPECT_EQ(result, -ENOENT) << "no tier is open";
	ASSERT_EQ(open(), 0);
	const auto stranger = key(1, kGroup + 1);
	EXPECT_EQ(cxl_kv_tier_report(client_->ns, &stranger, 1, 1, &result), 0);
	EXPECT_EQ(result, -EINVAL) << "no such group";
}

/* ---- health ---- */

TEST_F(AdviceStream, HealthTellsOfALivingAStuckAndALostManager)
{
	cxl_kv_health health{};
	EXPECT_EQ(cxl_kv_get_health(client_->kv, &health, 20000), -EINVAL) << "no size";
	health.size = sizeof(health);
	EXPECT_EQ(cxl_kv_get_health(client_->kv, &health, 0), -EINVAL);
	ASSERT_EQ(client_->store_one(key(1)), 0);
	ASSERT_EQ(cxl_kv_get_health(client_->kv, &health, 20000), 0);
	EXPECT_EQ(health.flags, 0u);
	EXPECT_EQ(health.hot_limit_bytes, 16u << 20);
	EXPECT_GT(health.hot_bytes, 0u);
	EXPECT_EQ(health.warm_limit_bytes, 0u);
	EXPECT_GT(health.cold_limit_bytes, 32u << 20);
	EXPECT_EQ(health.nr_store_errors, 0u);
	daemon_.signal(SIGSTOP);
	const auto begin = std::chrono::steady_clock::now();
	EXPECT_EQ(cxl_kv_get_health(client_->kv, &health, 50), -ETIMEDOUT);
	EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
		<< "a new manager is waited for twice as long";
	daemon_.signal(SIGCONT);
	EXPECT_EQ(cxl_kv_get_health(client_->kv, &health, 20000), 0);
	daemon_.kill();
	int rc = 0;
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
	while (!(rc = cxl_kv_get_health(client_->kv, &health, 1000)) &&
	       std::chrono::steady_clock::now() < end)
		std::this_thread::yield();
	EXPECT_EQ(rc, -ENOTCONN);
}

TEST(Health, FrozenAndAFailingStoreAreSaid)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	DaemonProcess daemon{{"HOT__LIMIT=16MiB", "COLD__SIZE=64MiB", "OBJECTS__SIZE=16MiB",
			      "DAEMON__ENABLED=false"}};
	daemon.start();
	ObjectClient client(daemon.socket());
	cxl_kv_health health{};
	health.size = sizeof(health);
	ASSERT_EQ(client.store_one(key(1)), 0);
	ASSERT_EQ(cxl_kv_get_health(client.kv, &health, 20000), 0);
	EXPECT_EQ(health.flags, uint32_t{CXL_KV_HEALTH_FROZEN});
	/* A shutdown writes the object out; then the file ends before it. */
	daemon.terminate();
	daemon.start();
	cxl_kv_ns_stats stats{};
	stats.size = sizeof(stats);
	ASSERT_EQ(cxl_kv_ns_get_stats(client.ns, &stats), 0) << "the new one has opened its store";
	ASSERT_EQ(truncate((daemon.folder() + "/spill").c_str(), 1 << 20), 0);
	EXPECT_EQ(client.load_one(key(1)), -EIO);
	ASSERT_EQ(cxl_kv_get_health(client.kv, &health, 20000), 0);
	EXPECT_EQ(health.flags, uint32_t{CXL_KV_HEALTH_FROZEN | CXL_KV_HEALTH_STORE_FAILING});
	EXPECT_GT(health.nr_store_errors, 0u);
}

TEST(Health, AnObjectPoolThatCouldNotBeMadeIsSaid)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	DaemonProcess daemon{{"HOT__LIMIT=16MiB", "COLD__SIZE=64MiB", "OBJECTS__SIZE=16MiB"}};
	daemon.start();
	const auto id = identity();
	const cxl_kv_group groups[] = {{kGroup, kObjectBytes}};
	const cxl_kv_ns_options ns_options = {sizeof(ns_options), 0, "test", &id, groups, 1};
	cxl_kv_options options{};
	cxl_kv_ns *ns = nullptr;
	cxl_kv *kv = nullptr;
	options.size = sizeof(options);
	options.socket_path = daemon.socket().c_str();
	ASSERT_EQ(cxl_kv_open(&options, &kv), 0);
	ASSERT_GE(cxl_kv_event_fd(kv, CXL_KV_LOAD), 0); /* what needs files of ours is done */
	daemon.limit_files(1);
	EXPECT_EQ(cxl_kv_ns_open(kv, &ns_options, nullptr, 0, &ns), -EOPNOTSUPP);
	daemon.limit_files(1024);
	cxl_kv_health health{};
	health.size = sizeof(health);
	EXPECT_EQ(cxl_kv_get_health(kv, &health, 20000), 0);
	EXPECT_EQ(health.flags, uint32_t{CXL_KV_HEALTH_NO_OBJECTS});
	cxl_kv_close(kv);
}

TEST_F(AdviceStream, HealthSaysThatATierIsBeingEmptied)
{
	setenv("CXL_KV_SOCKET", daemon_.socket().c_str(), 1);
	cxl_kv_health health{};
	health.size = sizeof(health);
	for (bool on : {true, false}) {
		nlohmann::json answer;
		ASSERT_EQ(ask_daemon({{"op", "drain"}, {"tier", "cold"}, {"on", on}}, answer), 0);
		ASSERT_EQ(cxl_kv_get_health(client_->kv, &health, 20000), 0);
		EXPECT_EQ(health.flags, on ? uint32_t{CXL_KV_HEALTH_DRAINING} : 0);
	}
}

} // namespace

} // namespace cxlkv::test
