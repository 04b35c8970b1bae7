// SPDX-License-Identifier: LGPL-2.1-or-later
/* Hints of libcxl_kv: what the ring holds, what is refused, and that it makes no system call. */
#include "lib/client_arena_fixture.h"

#include <cmath>
#include <csignal>
#include <linux/prctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

using namespace cxlkv;

namespace {

TEST_F(ArenaTest, HintsArriveInOrderAndWrap)
{
	create();
	const uint32_t nr = ring()->nr_entries;

	for (uint32_t i = 0; i < 3 * nr; i++) {
		ASSERT_EQ(cxl_kv_hint_position(arena_, i % 2, i % 128), 0) << i;
		ASSERT_EQ(std::atomic_ref(ring()->head).load(std::memory_order_acquire), i + 1);
		const cxl_kv_hint &hint = ring_entries()[i & (nr - 1)];
		ASSERT_EQ(hint.kind, CXL_KV_HINT_POSITION);
		ASSERT_EQ(hint.position, i % 128);
		std::atomic_ref(ring()->tail).store(i + 1, std::memory_order_release);
	}
}

TEST_F(ArenaTest, FullRingDropsAndCounts)
{
	create();
	const uint32_t nr = ring()->nr_entries;

	for (uint32_t i = 0; i < nr; i++)
		ASSERT_EQ(cxl_kv_hint_position(arena_, 0, 1), 0);
	EXPECT_EQ(cxl_kv_hint_position(arena_, 0, 2), -ENOSPC);
	EXPECT_EQ(cxl_kv_hint_position(arena_, 0, 2), -ENOSPC);
	EXPECT_EQ(ring()->nr_dropped, 2u);
	EXPECT_EQ(ring()->head, nr);
	EXPECT_EQ(ring_entries()[0].position, 1u) << "overwritten";
	ring()->tail = 1;
	EXPECT_EQ(cxl_kv_hint_position(arena_, 0, 3), 0);
	EXPECT_EQ(ring_entries()[0].position, 3u);
	/* A header full of nonsense neither crashes nor overwrites. */
	ring()->tail = 0x80000000;
	ring()->head = 12345;
	ring()->nr_entries = 0;
	EXPECT_EQ(cxl_kv_hint_position(arena_, 0, 4), -ENOSPC);
	ring()->tail = nr + 1;
	EXPECT_EQ(cxl_kv_hint_position(arena_, 0, 5), 0);
	EXPECT_EQ(ring()->head, nr + 2);
}

TEST_F(ArenaTest, BatchOfHintsIsAllValidOrNotSent)
{
	std::vector<cxl_kv_hint> hints(8);

	create();
	const uint32_t nr = ring()->nr_entries;
	for (uint32_t i = 0; i < hints.size(); i++) {
		hints[i].kind = CXL_KV_HINT_POSITION;
		hints[i].position = i;
	}
	EXPECT_EQ(cxl_kv_send_hints(arena_, nullptr, 0), 0);
	EXPECT_EQ(cxl_kv_send_hints(arena_, nullptr, 1), -EINVAL);
	hints.back().slot = 9;
	EXPECT_EQ(cxl_kv_send_hints(arena_, hints.data(), hints.size()), -EINVAL);
	EXPECT_EQ(ring()->head, 0u);
	hints.back().slot = 0;
	/* The last batch before the end wraps, the one after it has room for half. */
	for (uint32_t i = 0; i < nr - 4; i++)
		ASSERT_EQ(cxl_kv_send_hints(arena_, hints.data(), 1), 0);
	ring()->tail = nr - 4;
	EXPECT_EQ(cxl_kv_send_hints(arena_, hints.data(), hints.size()), 0);
	EXPECT_EQ(ring()->head, nr + 4);
	EXPECT_EQ(ring_entries()[nr - 1].position, 3u);
	EXPECT_EQ(ring_entries()[3].position, 7u);
	ring()->tail = 8;
	EXPECT_EQ(cxl_kv_send_hints(arena_, hints.data(), hints.size()), -ENOSPC);
	EXPECT_EQ(ring()->head, nr + 8);
	EXPECT_EQ(ring()->nr_dropped, 4u);
	EXPECT_EQ(ring_entries()[7].position, 3u);
}

/* Counts the system calls of this thread, and does not do them, while it lives. */
class SyscallCounter {
public:
	SyscallCounter()
	{
		struct sigaction action {};

		nr_ = 0;
		action.sa_handler = [](int) {
			nr_ = nr_ + 1;
			selector_ = SYSCALL_DISPATCH_FILTER_ALLOW; /* for the way out of here */
		};
		sigaction(SIGSYS, &action, nullptr);
		active_ =
			!prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector_);
		selector_ = SYSCALL_DISPATCH_FILTER_BLOCK;
	}
	~SyscallCounter()
	{
		selector_ = SYSCALL_DISPATCH_FILTER_ALLOW;
		prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
		signal(SIGSYS, SIG_DFL);
	}
	static int stop()
	{
		selector_ = SYSCALL_DISPATCH_FILTER_ALLOW;
		return nr_;
	}
	[[nodiscard]] bool active() const { return active_; }

private:
	static inline volatile char selector_ = SYSCALL_DISPATCH_FILTER_ALLOW;
	static inline volatile int nr_ = 0;
	bool active_;
};

TEST_F(ArenaTest, HintsAndHitsMakeNoSystemCall)
{
	const cxl_kv_range range{0, 0, 0, 8};
	int failed = 0, nr_calls;

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	{
		SyscallCounter counter;

		if (!counter.active())
			GTEST_SKIP() << "no system call dispatch in this kernel";
		syscall(SYS_getppid);
		nr_calls = SyscallCounter::stop();
	}
	EXPECT_EQ(nr_calls, 1) << "the counter counts";
	{
		SyscallCounter counter;

		for (int i = 0; i < 1000; i++) {
			failed |= cxl_kv_lease(arena_, &range, 1, 1000, nullptr);
			failed |= cxl_kv_hint_score(arena_, 0, 0, 0, 0.5f);
			failed |= cxl_kv_unlease(arena_, &range, 1);
			ring()->tail = ring()->head;
		}
		nr_calls = SyscallCounter::stop();
	}
	EXPECT_EQ(nr_calls, 0);
	EXPECT_EQ(failed, 0);
}

TEST_F(ArenaTest, HintsAreCheckedAsTheConsumerWould)
{
	using Change = std::function<void(cxl_kv_hint &)>;

	create();
	auto send = [&](cxl_kv_hint_kind kind, const Change &change = {}) {
		cxl_kv_hint hint{};

		hint.kind = static_cast<uint8_t>(kind);
		if (kind == CXL_KV_HINT_SCORE || kind == CXL_KV_HINT_PIN ||
		    kind == CXL_KV_HINT_SEAL || kind == CXL_KV_HINT_DROP)
			hint.nr_blocks = 8;
		if (change)
			change(hint);
		return cxl_kv_send_hint(arena_, &hint);
	};
	uint32_t nr_sent = 0;
	for (int kind = CXL_KV_HINT_SCORE; kind <= CXL_KV_HINT_DROP; kind++, nr_sent++)
		EXPECT_EQ(send(static_cast<cxl_kv_hint_kind>(kind)), 0) << kind;

	for (int kind : {0, 9, 31, 32, 255})
		EXPECT_EQ(send(static_cast<cxl_kv_hint_kind>(kind)), -EINVAL) << kind;
	const std::pair<cxl_kv_hint_kind, Change> wrong[] = {
		{CXL_KV_HINT_SCORE, [](auto &hint) { hint.nr_blocks = 9; }},
		{CXL_KV_HINT_SCORE, [](auto &hint) { hint.nr_blocks = 0; }},
		{CXL_KV_HINT_SCORE, [](auto &hint) { hint.head = 4; }},
		{CXL_KV_HINT_SCORE, [](auto &hint) { hint.block = 1; }},
		{CXL_KV_HINT_SCORE, [](auto &hint) { hint.reserved = 1; }},
		{CXL_KV_HINT_SCORE, [](auto &hint) { hint.priority = 1; }},
		{CXL_KV_HINT_SCORE, [](auto &hint) { hint.position = 1; }},
		{CXL_KV_HINT_SEAL, [](auto &hint) { hint.score = 1; }},
		{CXL_KV_HINT_SEAL, [](auto &hint) { hint.lifetime_ms = 1; }},
		{CXL_KV_HINT_PIN, [](auto &hint) { hint.priority = 101; }},
		{CXL_KV_HINT_POSITION, [](auto &hint) { hint.position = 129; }},
		{CXL_KV_HINT_POSITION, [](auto &hint) { hint.slot = 2; }},
		{CXL_KV_HINT_POSITION, [](auto &hint) { hint.nr_blocks = 1; }},
		{CXL_KV_HINT_PHASE, [](auto &hint) { hint.position = 2; }},
		{CXL_KV_HINT_PARK, [](auto &hint) { hint.position = 1; }},
	};
	for (const auto &[kind, change] : wrong)
		EXPECT_EQ(send(kind, change), -EINVAL) << "case " << &change - &wrong[0].second;
	EXPECT_EQ(cxl_kv_send_hint(arena_, nullptr), -EINVAL);
	EXPECT_EQ(ring()->head, nr_sent);
}

TEST_F(ArenaTest, ShorthandsFillTheHint)
{
	const cxl_kv_range range{1, 3, 0, 8};

	create();
	EXPECT_EQ(cxl_kv_hint_score(arena_, 0, 0, 0, NAN), -EINVAL);
	EXPECT_EQ(cxl_kv_hint_score(arena_, 0, 0, 0, -0.1f), -EINVAL);
	EXPECT_EQ(cxl_kv_pin(arena_, &range, 101, 0), -EINVAL);
	EXPECT_EQ(cxl_kv_pin(arena_, nullptr, 1, 0), -EINVAL);
	EXPECT_EQ(cxl_kv_seal(arena_, nullptr), -EINVAL);
	EXPECT_EQ(cxl_kv_hint_score(arena_, 0, 0, 0, 1.0001f), 0);
	EXPECT_EQ(cxl_kv_hint_score(arena_, 0, 0, 0, 0.5f), 0);
	EXPECT_EQ(cxl_kv_pin(arena_, &range, 100, 5000), 0);
	EXPECT_EQ(cxl_kv_seal(arena_, &range), 0);
	EXPECT_EQ(ring()->head, 4u);
	const cxl_kv_hint *hints = ring_entries();
	EXPECT_EQ(hints[0].score, CXL_KV_SCORE_ONE);
	EXPECT_EQ(hints[1].score, 32768u);
	EXPECT_EQ(hints[2].priority, 100);
	EXPECT_EQ(hints[2].lifetime_ms, 5000u);
	EXPECT_EQ(hints[2].slot, 1u);
	EXPECT_EQ(hints[2].head, 3u);
	EXPECT_EQ(hints[3].kind, CXL_KV_HINT_SEAL);
	EXPECT_EQ(hints[3].nr_blocks, 8u);
}

} // namespace
