/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * While it looks for items by itself the daemon has clients leave their doorbell
 * alone. An item that is sent in the moment when it goes to sleep is not forgotten.
 */
#include "lib/object_client.h"

#include <chrono>
#include <gtest/gtest.h>
#include <random>

namespace cxlkv::test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNrJobs = 200'000;
/* The daemon looks for 20 us after it took an item, of which the job itself takes some. */
constexpr std::chrono::nanoseconds kPauses{25'000};
constexpr auto kPatience = std::chrono::seconds(10);

/* A load of what was never stored has its answer: none of it waits for anything else. */
bool answered(cxl_kv *kv, cxl_kv_ns *ns, const cxl_kv_key &key, std::byte *byte)
{
	iovec iov{byte, 1};
	const cxl_kv_transfer transfer{key, 0, &iov, 1};
	cxl_kv_completion done{};
	cxl_kv_job job{};
	const auto end = Clock::now() + kPatience;

	job.size = sizeof(job);
	job.transfers = &transfer;
	job.nr = 1;
	if (cxl_kv_submit_load(ns, &job, nullptr))
		return false;
	while (!cxl_kv_poll(kv, CXL_KV_LOAD, &done, 1))
		if (Clock::now() >= end)
			return false;
	return done.error == -ENOENT;
}

TEST(ObjectDoorbell, no_item_is_forgotten_by_a_daemon_that_goes_to_sleep)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	DaemonProcess daemon({"HOT__LIMIT=16MiB", "COLD__SIZE=128MiB", "OBJECTS__SIZE=32MiB"});
	daemon.start();
	ObjectClient client(daemon.socket());
	std::mt19937 random(1);
	std::byte byte{};

	for (int i = 0; i < kNrJobs; i++) {
		ASSERT_TRUE(answered(client.kv, client.ns, key(1), &byte)) << "job " << i;
		const auto next = Clock::now() + kPauses * (random() % 1024) / 1024;
		while (Clock::now() < next)
			;
	}
}

} // namespace

} // namespace cxlkv::test
