/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A policy with one small arena, and short words for what the daemon tells it and asks of it. */
#pragma once

#include "core/policy.h"

#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <vector>

namespace cxlkv {

/* Two layers of two heads, 16 blocks a head, 16 tokens a block: 64 blocks a slot. */
inline Geometry small_geometry(uint32_t slots = 4)
{
	Geometry g;
	g.nr_slots = slots;
	g.nr_layers = 2;
	g.nr_kv_heads = 2;
	g.head_dim = 8;
	g.elem_bytes = 2;
	g.tokens_per_block = 16;
	g.tokens_per_slot = 256;
	g.block_bytes = 4096;
	g.layer_window.assign(2, 0);
	return g;
}

class PolicyTest : public testing::Test {
protected:
	static constexpr uint32_t block_bytes = 4096;

	void start(const PolicyOptions &options = plain(), const Geometry &g = small_geometry())
	{
		ASSERT_EQ(check_options(options), "");
		ASSERT_EQ(check_geometry(g), "");
		geometry = g;
		policy = std::make_unique<Policy>(options);
		policy->add_arena(1, g);
	}

	/* No anchors and no guesses, so that each test sees one rule. */
	static PolicyOptions plain()
	{
		PolicyOptions options;
		options.anchor_blocks = 0;
		options.prefetch_window_tokens = 0;
		options.prefetch_layers = 0;
		return options;
	}

	void moved(uint32_t first, uint32_t nr, Where where)
	{
		policy->moved({1, first, nr}, where, now_ms);
	}
	void make_slot(uint32_t slot) { moved(slot * 64, 64, Where::Hot); }

	void hint(uint8_t kind, uint32_t slot, uint32_t position = 0)
	{
		cxl_kv_hint h = {};
		h.kind = kind;
		h.slot = slot;
		h.position = position;
		policy->hint(1, h, now_ms);
	}

	/* Sessions that are parked and all cold, and hot with a limit of so many blocks. */
	void start_cold(uint32_t nr_slots, uint32_t limit)
	{
		start();
		for (uint32_t slot = 0; slot < nr_slots; slot++)
			make_slot(slot);
		now_ms += 1000;
		for (uint32_t slot = 0; slot < nr_slots; slot++)
			hint(CXL_KV_HINT_PARK, slot);
		obey(plan(hot_of(nr_slots * 64, limit, 2, 1)));
		now_ms += 1000;
	}

	void score(uint32_t slot, uint32_t head, uint32_t block, uint32_t nr, double mass)
	{
		cxl_kv_hint h = {};
		h.kind = CXL_KV_HINT_SCORE;
		h.slot = slot;
		h.head = head;
		h.block = block;
		h.nr_blocks = nr;
		h.score = static_cast<uint16_t>(mass * CXL_KV_SCORE_ONE);
		policy->hint(1, h, now_ms);
	}

	void pin(uint32_t slot, uint32_t head, uint32_t block, uint32_t nr, uint8_t priority,
		 uint32_t lifetime_ms = 0)
	{
		cxl_kv_hint h = {};
		h.kind = CXL_KV_HINT_PIN;
		h.slot = slot;
		h.head = head;
		h.block = block;
		h.nr_blocks = nr;
		h.priority = priority;
		h.lifetime_ms = lifetime_ms;
		policy->hint(1, h, now_ms);
	}

	/* All four heads touch block b of the slot in this step. */
	void touch(uint32_t slot, uint32_t block, uint32_t nr = 1)
	{
		for (uint32_t head = 0; head < 4; head++)
			score(slot, head, block, nr, 0.5);
	}

	/* A plan with room for limit blocks in hot, high and low at the given counts. */
	static PlanInput hot_of(uint32_t used, uint32_t limit, uint32_t high, uint32_t low)
	{
		PlanInput in;
		in.hot = {uint64_t{used} * block_bytes, uint64_t{limit} * block_bytes,
			  uint64_t{high} * block_bytes, uint64_t{low} * block_bytes};
		in.move_budget_bytes = in.spill_budget_bytes = 1 << 30;
		return in;
	}

	std::vector<Order> plan(PlanInput in)
	{
		in.now_ms = now_ms;
		return policy->plan(in);
	}

	static std::set<uint32_t> blocks(const std::vector<Order> &orders, Action action)
	{
		std::set<uint32_t> all;
		for (const Order &order : orders)
			for (uint32_t i = 0; order.action == action && i < order.extent.nr; i++)
				EXPECT_TRUE(all.insert(order.extent.first + i).second)
					<< "ordered twice";
		return all;
	}

	/* The daemon does all it was told. */
	void obey(const std::vector<Order> &orders)
	{
		for (const Order &order : orders) {
			Where to = order.action == Action::Demote  ? Where::Warm
				   : order.action == Action::Spill ? Where::Cold
				   : order.action == Action::Drop  ? Where::Empty
								   : Where::Hot;
			policy->moved(order.extent, to, now_ms);
		}
	}

	Geometry geometry;
	std::unique_ptr<Policy> policy;
	uint64_t now_ms = 10'000;
};

} // namespace cxlkv
