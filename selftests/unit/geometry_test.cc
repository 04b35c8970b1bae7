/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* check_geometry(): what a client may register. */
#include "core/types.h"

#include <functional>
#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

Geometry good()
{
	Geometry g;
	g.nr_slots = 16;
	g.nr_layers = 5;
	g.nr_kv_heads = 4;
	g.head_dim = 8;
	g.elem_bytes = 2;
	g.tokens_per_block = 16;
	g.tokens_per_slot = 2048;
	g.block_bytes = 4096;
	g.layer_window.assign(5, 0);
	return g;
}

std::string with(const std::function<void(Geometry &)> &change)
{
	Geometry g = good();
	change(g);
	return check_geometry(g);
}

} // namespace

TEST(Geometry, AcceptsOrdinaryOnes)
{
	EXPECT_EQ(check_geometry(good()), "");
	EXPECT_EQ(good().nr_blocks(), 16u * 20 * 128);
}

TEST(Geometry, NamesTheFieldThatIsOutOfRange)
{
	EXPECT_NE(with([](Geometry &g) { g.nr_slots = 0; }).find("nr_slots"), std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.nr_layers = 1025; }).find("nr_layers"),
		  std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.nr_kv_heads = UINT32_MAX; }).find("nr_kv_heads"),
		  std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.head_dim = 0; }).find("head_dim"), std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.elem_bytes = 3; }).find("elem_bytes"),
		  std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.tokens_per_block = 0; }).find("tokens_per_block"),
		  std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.tokens_per_slot = 2047; }).find("multiple"),
		  std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.block_bytes = 5000; }).find("block_bytes"),
		  std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.block_bytes = 2048; }).find("block_bytes"),
		  std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.block_bytes = 4 << 20; }).find("block_bytes"),
		  std::string::npos);
	EXPECT_NE(with([](Geometry &g) { g.layer_window.pop_back(); }).find("layer_window"),
		  std::string::npos);
}

TEST(Geometry, RefusesBlocksThatDoNotHoldTheirTokens)
{
	EXPECT_NE(with([](Geometry &g) { g.head_dim = 128; }), "");
	EXPECT_NE(with([](Geometry &g) { g.head_dim = g.tokens_per_block = 1 << 21; }), "");
}

TEST(Geometry, CountsBlocksWithoutOverflow)
{
	auto big = [](Geometry &g) {
		g.nr_slots = 65536;
		g.nr_layers = 1024;
		g.nr_kv_heads = 1024;
		g.tokens_per_block = 1;
		g.tokens_per_slot = UINT32_MAX;
		g.layer_window.assign(1024, 0);
	};
	EXPECT_NE(with(big).find("blocks"), std::string::npos);
	/* 2^16 * 2^16 is 0 in 32 bits. */
	EXPECT_NE(with([](Geometry &g) {
			  g.nr_slots = 65536;
			  g.tokens_per_slot = 65536 * 16;
		  }).find("blocks"),
		  std::string::npos);
}
