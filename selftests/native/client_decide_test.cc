// SPDX-License-Identifier: LGPL-2.1-or-later
/* cxl_kv_decide() against a real daemon: what it measured decides. */
#include "cli/control_client.h"
#include "lib/daemon_fixture.h"

#include <cmath>
#include <nlohmann/json.hpp>

using namespace cxlkv;

namespace {

class DecideTest : public DaemonFixture {
protected:
	void SetUp() override
	{
		start(wide_geometry,
		      {"HOT__LIMIT=4MiB", "COLD__SIZE=64MiB", "DAEMON__INTERVAL_MS=5"});
	}

	static cxl_kv_decide_args args()
	{
		cxl_kv_decide_args args{};
		args.size = sizeof(args);
		args.tokens = 1024;
		args.prefill_tokens_per_s = 1000; /* a second */
		args.return_probability = 1;
		args.flags = CXL_KV_DECIDE_BYTES;
		args.cold_bytes = 1 << 20;
		return args;
	}

	cxl_kv_decision decide(const cxl_kv_decide_args &args)
	{
		cxl_kv_decision decision{};
		EXPECT_EQ(cxl_kv_decide(arena_, &args, &decision), 0) << messages();
		return decision;
	}
};

} // namespace

TEST_F(DecideTest, MeasuresTheDriveAtItsStart)
{
	/* Until then no way is known, and computing is all there is. */
	ASSERT_TRUE(eventually([&] { return decide(args()).fetch_ns != UINT64_MAX; }))
		<< daemon_->log();
	cxl_kv_decide_args ask = args();
	cxl_kv_decision d = decide(ask);
	EXPECT_EQ(d.verdict, CXL_KV_FETCH) << d.fetch_ns;
	EXPECT_EQ(d.recompute_ns, 1024000000u);
	EXPECT_EQ(d.chosen_ns, d.fetch_ns);
	ask.prefill_tokens_per_s = 1e12;
	EXPECT_EQ(decide(ask).verdict, CXL_KV_RECOMPUTE);
	ask.cold_bytes = 1ull << 50;
	ask.prefill_tokens_per_s = 1000;
	EXPECT_EQ(decide(ask).verdict, CXL_KV_RECOMPUTE);
}

TEST_F(DecideTest, KnowsWhereTheSessionIs)
{
	cxl_kv_decide_args ask = args();

	ask.flags = 0;
	ask.slot = 1;
	EXPECT_EQ(decide(ask).fetch_ns, 0u) << "an empty session";
	ASSERT_EQ(cxl_kv_session_open(arena_, 1, nullptr), 0);
	const cxl_kv_range range{1, 0, 0, 8};
	ASSERT_EQ(cxl_kv_make(arena_, &range, 1, 10000), 0);
	EXPECT_EQ(decide(ask).fetch_ns, 0u) << "all of it is hot";
	/* Not needed now, and hardly ever again: to write it down is not worth it. */
	ASSERT_TRUE(eventually([&] { return decide(args()).fetch_ns != UINT64_MAX; }));
	ask.return_probability = 0;
	EXPECT_EQ(decide(ask).verdict, CXL_KV_DROP);
	ask.return_probability = 0.9;
	EXPECT_EQ(decide(ask).verdict, CXL_KV_FETCH);
}

/* Of one block nearly all is what the wake costs beside the transfer. */
TEST_F(DecideTest, LearnsWhatAWakeCosts)
{
	const cxl_kv_range range{0, 0, 0, 1};
	ASSERT_TRUE(eventually([&] { return decide(args()).fetch_ns != UINT64_MAX; }));
	ASSERT_EQ(cxl_kv_session_open(arena_, 0, nullptr), 0);
	ASSERT_EQ(cxl_kv_make(arena_, &range, 1, timeout_ms), 0);
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
		ASSERT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), 0);
	}
	/* Nothing was transferred: the daemon's own figures are as they were. */
	cxl_kv_decide_args ask = args();
	ask.cold_bytes = 4096;
	nlohmann::json answer;
	ASSERT_EQ(ask_daemon({{"op", "decide"},
			      {"cold_bytes", "4096"},
			      {"tokens", ask.tokens},
			      {"prefill_tokens_per_s", ask.prefill_tokens_per_s}},
			     answer),
		  0);
	const uint64_t transfer_ns = std::stoull(text_at(answer, "/fetch_ns"));
	EXPECT_GT(decide(ask).fetch_ns, transfer_ns + 1000) << "no call takes less";
	ask.cold_bytes = 0;
	EXPECT_EQ(decide(ask).fetch_ns, 0u);
}

TEST_F(DecideTest, RefusesNonsense)
{
	cxl_kv_decision decision;
	auto refused = [&](auto change) {
		cxl_kv_decide_args ask = args();
		change(ask);
		return cxl_kv_decide(arena_, &ask, &decision);
	};
	EXPECT_EQ(refused([](auto &a) { a.prefill_tokens_per_s = 0; }), -EINVAL);
	EXPECT_EQ(refused([](auto &a) { a.prefill_tokens_per_s = -1; }), -EINVAL);
	EXPECT_EQ(refused([](auto &a) { a.return_probability = 1.5; }), -EINVAL);
	EXPECT_EQ(refused([](auto &a) { a.margin = 0.5; }), -EINVAL);
	EXPECT_EQ(refused([](auto &a) { a.margin = INFINITY; }), -EINVAL);
	EXPECT_EQ(refused([](auto &a) { a.flags |= 1u << 9; }), -EINVAL);
	EXPECT_EQ(refused([](auto &a) { a.size = 8; }), -EINVAL);
	EXPECT_EQ(refused([](auto &a) { a.size = 4096; }), -E2BIG);
	EXPECT_EQ(refused([](auto &a) {
			  a.flags = 0;
			  a.slot = wide_geometry.nr_slots;
		  }),
		  -EINVAL);
	EXPECT_EQ(cxl_kv_decide(arena_, nullptr, &decision), -EINVAL);
}
