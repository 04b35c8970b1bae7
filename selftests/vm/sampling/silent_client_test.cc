/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client that gives no hints, as the daemon that sampling.sh started sees it: what
 * each of its CPUs touches is found; the interval gets short while that changes and
 * long again when it does not; when it is stopped, its scores halve every 3.1 passes.
 */
#include "cxl_kv.h"
#include "lib/control_peer.h"
#include "lib/eventually.h"
#include "lib/run_on.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>

using namespace cxlkv;
using nlohmann::json;

namespace {

constexpr uint32_t kHeads = 2;     /* and CPUs, one each */
constexpr uint32_t kBlocks = 2048; /* of a head, of a page each: a pass is short */
constexpr uint32_t kTouched = 64;  /* at a time, of each head */
constexpr uint32_t kLongestMs = 2000, kShortestMs = 1000; /* a pass fits, in the debug kernel too */

/* Touches blocks of a head, from its own CPU, again and again, and others every 100 ms while
 * *moving. */
[[noreturn]] void touch(cxl_kv_arena *arena, uint32_t head, const volatile bool *moving)
{
	if (!test::run_on(static_cast<int>(head)))
		_exit(1);
	volatile char sink = 0;
	for (uint32_t turn = 0;; turn += *moving) {
		for (uint32_t i = 0; i < kTouched; i++)
			sink = sink +
			       *static_cast<char *>(cxl_kv_block(
				       arena, 0, head, (turn / 100 * kTouched + i) % kBlocks));
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
}

[[noreturn]] void run_client(const volatile bool *moving)
{
	cxl_kv_options options{};
	options.size = sizeof(options);
	cxl_kv *kv = nullptr;
	cxl_kv_arena *arena = nullptr;
	cxl_kv_geometry geometry{};
	geometry.nr_slots = 1;
	geometry.nr_layers = 1;
	geometry.nr_kv_heads = kHeads;
	geometry.head_dim = 32;
	geometry.elem_bytes = 2;
	geometry.tokens_per_block = 32;
	geometry.tokens_per_slot = kBlocks * 32;
	geometry.block_bytes = 4096;
	if (cxl_kv_open(&options, &kv) || cxl_kv_arena_create(kv, &geometry, nullptr, &arena) ||
	    cxl_kv_session_open(arena, 0, nullptr))
		_exit(1);
	for (uint32_t head = 0; head < kHeads; head++) {
		const cxl_kv_range all{0, head, 0, kBlocks};
		if (cxl_kv_make(arena, &all, 1, 60000))
			_exit(1);
	}
	std::thread other([=] { touch(arena, 1, moving); });
	touch(arena, 0, moving);
}

class SilentClientTest : public testing::Test {
protected:
	void SetUp() override
	{
		const char *path = getenv("CXL_KV_SOCKET");
		socket_ = path ? path : "/run/cxl-kv/control.sock";
		set("sampling.interval_ms", kLongestMs);
		set("sampling.min_interval_ms", kShortestMs);
		void *shared = mmap(nullptr, sizeof(bool), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		ASSERT_NE(shared, MAP_FAILED);
		moving_ = static_cast<volatile bool *>(shared);
		*moving_ = false;
		client_ = fork();
		if (!client_)
			run_client(moving_);
	}
	void TearDown() override
	{
		kill(client_, SIGKILL);
		waitpid(client_, nullptr, 0);
	}
	json ask(const json &request) { return test::ControlPeer(socket_).ask(request.dump()); }
	void set(const char *key, uint32_t value)
	{
		json answer = ask({{"op", "tune"}, {"set", {{key, std::to_string(value)}}}});
		EXPECT_FALSE(answer.contains("error")) << answer.dump();
	}
	/* Of the client's arena, 0 while there is none. */
	uint32_t arena()
	{
		const json answer = ask({{"op", "list"}});
		for (const json &arena : answer["arenas"])
			if (arena["pid"] == client_)
				return arena["arena"];
		return 0;
	}
	uint32_t interval_ms()
	{
		const uint32_t number = arena();
		const json answer = ask({{"op", "status"}});
		for (const json &one : answer["sampling"]["intervals"])
			if (number && one["arena"] == number)
				return one["ms"];
		return 0;
	}
	json head(uint32_t head)
	{
		return ask({{"op", "heads"}, {"arena", arena()}})["heads"][head];
	}
	double score() { return head(0)["ema_sum"]; }
	static bool eventually(const std::function<bool()> &condition)
	{
		const char *slow = getenv("VM_SLOW");
		return test::eventually(condition,
					std::chrono::seconds(120) * (slow ? atoi(slow) : 1));
	}

	std::string socket_;
	volatile bool *moving_ = nullptr;
	pid_t client_ = -1;
};

TEST_F(SilentClientTest, WhatEachCpuTouchesIsFound)
{
	ASSERT_TRUE(eventually([&] { return arena() != 0; }));
	for (uint32_t head = 0; head < kHeads; head++)
		EXPECT_TRUE(eventually([&] { return this->head(head)["reads"] > 3 * kTouched; }))
			<< "of CPU " << head << ": " << this->head(head);
}

TEST_F(SilentClientTest, TheIntervalFollowsTheChangeAndComesBack)
{
	ASSERT_TRUE(eventually([&] { return interval_ms() == kLongestMs; }));
	*moving_ = true;
	EXPECT_TRUE(eventually([&] { return interval_ms() == kShortestMs; }))
		<< ask({{"op", "status"}})["sampling"].dump();
	*moving_ = false;
	EXPECT_TRUE(eventually([&] { return interval_ms() == kLongestMs; }))
		<< ask({{"op", "status"}})["sampling"].dump();
}

TEST_F(SilentClientTest, ScoresOfAStoppedClientDecayByTheFormula)
{
	/* Then nothing is left of the writes that made the blocks, and these 64 score all. */
	ASSERT_TRUE(eventually([&] { return arena() && std::abs(score() - kTouched) < 1; }));
	kill(client_, SIGSTOP);
	ASSERT_EQ(waitpid(client_, nullptr, WUNTRACED), client_);
	/* What was on its way has come: from one look to the next it is a step of decay. */
	double before = score();
	int nr_steps = 0;
	EXPECT_TRUE(eventually([&] {
		const double now = score();
		if (now == before)
			return false;
		const double steps = std::log(now / before) / std::log(0.8);
		if (steps < 0.5) /* still one that was touched */
			nr_steps = 0;
		else
			EXPECT_NEAR(steps, std::round(steps), 0.02) << before << " -> " << now;
		nr_steps += steps >= 0.5;
		before = now;
		return nr_steps == 6;
	}));
}

} // namespace
