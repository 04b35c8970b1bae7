/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What prefetch is worth to a conversation that comes back: demand faults with a
 * wake, the position window and the layer look-ahead, and without any of them.
 */
#include "cli/control_client.h"
#include "lib/daemon_fixture.h"

#include <nlohmann/json.hpp>

using namespace cxlkv;

namespace {

/* Four sessions of 1.5 MiB: 6 layers, 2 KV heads, 16 blocks of 64 tokens. */
constexpr cxl_kv_geometry kGeometry{
	.nr_slots = 4,
	.nr_layers = 6,
	.nr_kv_heads = 2,
	.head_dim = 32,
	.elem_bytes = 2,
	.tokens_per_block = 64,
	.tokens_per_slot = 1024,
	.block_bytes = 8 << 10,
};
constexpr uint32_t kHeads = 12, kBlocks = 16, kTokens = 64;

class PrefetchTest : public DaemonFixture {
protected:
	static uint64_t demand_restores()
	{
		auto status = ask_daemon({{"op", "status"}});
		return status ? number_at(*status, "/restore/demand") : 0;
	}

	void fill()
	{
		for (uint32_t slot = 0; slot < kGeometry.nr_slots; slot++) {
			ASSERT_EQ(cxl_kv_session_open(arena_, slot, nullptr), 0);
			for (uint32_t head = 0; head < kHeads; head++) {
				cxl_kv_range range{slot, head, 0, kBlocks};
				ASSERT_EQ(cxl_kv_make(arena_, &range, 1, timeout_ms), 0);
			}
			ASSERT_EQ(cxl_kv_session_park(arena_, slot), 0);
		}
	}

	uint32_t nr_cold(uint32_t slot, uint32_t nr_heads = kHeads)
	{
		uint32_t nr = 0;
		for (uint32_t i = 0; i < nr_heads * kBlocks; i++)
			nr += (cxl_kv_block_word(arena_, slot, i / kBlocks, i % kBlocks) &
			       CXL_KV_WORD_STATE_MASK) == CXL_KV_COLD;
		return nr;
	}

	/* Demand faults of session 0 while it decodes kTokens without leases, layer by layer. */
	void decode(bool prefetch, uint64_t *nr_faults)
	{
		start(kGeometry,
		      {"HOT__LIMIT=3MiB", "COLD__SIZE=64MiB",
		       prefetch ? "POLICY__PREFETCH_LAYERS=2" : "POLICY__PREFETCH_LAYERS=0",
		       prefetch ? "POLICY__PREFETCH_WINDOW_TOKENS=512"
				: "POLICY__PREFETCH_WINDOW_TOKENS=0"});
		if (IsSkipped() || HasFatalFailure())
			return;
		fill();
		/* Anchors, the first block of each head, may stay. */
		ASSERT_TRUE(eventually([&] { return nr_cold(0) >= kHeads * (kBlocks - 1); }));

		volatile char sink = 0;
		uint64_t before = demand_restores();
		if (prefetch) {
			ASSERT_EQ(cxl_kv_session_wake(arena_, 0, 0, nullptr), 0);
			/* An engine begins when its first layer is there. */
			ASSERT_TRUE(
				eventually([&] { return nr_cold(0, kGeometry.nr_kv_heads) == 0; }));
		}
		for (uint32_t token = 0; token < kTokens; token++) {
			cxl_kv_hint_position(arena_, 0, 1024 - kTokens + token);
			for (uint32_t head = 0; head < kHeads; head++) {
				for (uint32_t block = 0; block < kBlocks; block++)
					sink = sink + *static_cast<char *>(
							      cxl_kv_block(arena_, 0, head, block));
				/* The layer's computation. */
				if (head % kGeometry.nr_kv_heads)
					std::this_thread::sleep_for(std::chrono::milliseconds(2));
			}
		}
		*nr_faults = demand_restores() - before;
		TearDown();
	}
};

} // namespace

TEST_F(PrefetchTest, AWokenConversationFaultsLess)
{
	uint64_t with = 0, without = 0;

	decode(false, &without);
	if (IsSkipped())
		return;
	decode(true, &with);
	printf("# demand faults per 1,000 tokens of a woken conversation: %.0f with prefetch, %.0f "
	       "without\n",
	       with * 1000.0 / kTokens, without * 1000.0 / kTokens);
	EXPECT_GT(without, 0u);
	EXPECT_LT(with, without);
}

/* The window is the caller's, and what does not fit stays where it is. */
TEST_F(PrefetchTest, TokensAroundAPositionComeWhenAskedFor)
{
	start(kGeometry, {"HOT__LIMIT=3MiB", "COLD__SIZE=64MiB", "POLICY__ANCHOR_BLOCKS=0",
			  "POLICY__PREFETCH_LAYERS=0", "POLICY__PREFETCH_WINDOW_TOKENS=0"});
	if (IsSkipped())
		return;
	ASSERT_NO_FATAL_FAILURE(fill());
	ASSERT_TRUE(eventually([&] { return nr_cold(0) == kHeads * kBlocks; }));
	for (uint32_t slot = 1; slot < kGeometry.nr_slots; slot++)
		ASSERT_EQ(cxl_kv_session_close(arena_, slot), 0);
	EXPECT_EQ(cxl_kv_session_prefetch(arena_, kGeometry.nr_slots, 0, 0), -EINVAL);
	EXPECT_EQ(cxl_kv_session_prefetch(arena_, 0, kGeometry.tokens_per_slot + 1, 0), -EINVAL);
	/* Block 10 and its neighbours. */
	ASSERT_EQ(cxl_kv_session_prefetch(arena_, 0, 10 * kTokens + 5, kTokens), 0);
	ASSERT_TRUE(eventually([&] { return nr_cold(0) == kHeads * (kBlocks - 3); }));
	for (uint32_t head = 0; head < kHeads; head++)
		for (uint32_t block = 0; block < kBlocks; block++)
			EXPECT_EQ((cxl_kv_block_word(arena_, 0, head, block) &
				   CXL_KV_WORD_STATE_MASK) == CXL_KV_COLD,
				  block < 9 || block > 11)
				<< head << "/" << block;
	ASSERT_EQ(cxl_kv_session_prefetch(arena_, 0, 0, UINT32_MAX), 0);
	EXPECT_TRUE(eventually([&] { return nr_cold(0) == 0; }));
}
