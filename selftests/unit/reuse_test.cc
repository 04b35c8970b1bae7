/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the adaptive policy learns, and which prefix blocks it keeps by that. */
#include "core/prefix_cache.h"
#include "core/reuse_model.h"

#include <gtest/gtest.h>
#include <numeric>

using namespace cxlkv;

namespace {

std::vector<uint32_t> chain(uint32_t first, uint32_t nr)
{
	std::vector<uint32_t> blocks(nr);
	std::iota(blocks.begin(), blocks.end(), first);
	return blocks;
}

} // namespace

TEST(Reuse, BlocksThatComeBackSoonAreWorthMore)
{
	ReuseModel model(1e6);
	for (int i = 0; i < 20'000; i++) { /* many, so that the kinds stand for themselves */
		model.watched(1, 0, 100);  /* used every 100 */
		model.used(1, 100);
		model.watched(2, 0, 10'000);
		model.used(2, 10'000);
		model.watched(3, 0, 100'000); /* never */
	}
	model.learn(100'000);
	EXPECT_GT(model.worth(1, 10), 10 * model.worth(2, 10));
	EXPECT_GT(model.worth(2, 10), 3 * model.worth(3, 10));
	/* A block that has waited nearly as long as its kind waits is due, one just used is not. */
	EXPECT_GT(model.worth(2, 8'000), 2 * model.worth(2, 10));
	/* Overdue: it will not come. */
	EXPECT_LT(model.worth(1, 50'000), model.worth(1, 50) / 10);
}

TEST(Reuse, TimeIsWholeSteps)
{
	ReuseModel model(1e6);
	for (int i = 0; i < 20'000; i++) {
		/* Nine of ten are used at the next step, the others not for long. */
		model.watched(1, 0, i % 10 ? 1 : 50);
		if (i % 10)
			model.used(1, 1);
		/* All are used at every second. */
		model.watched(2, 0, 2);
		model.used(2, 2);
	}
	model.learn(1);
	EXPECT_GT(model.worth(1, 0), 0.8);
	EXPECT_LT(model.worth(1, 1), 0.05) << "it has just missed its use";
	EXPECT_GT(model.worth(2, 1), 2 * model.worth(2, 0)) << "due";
	EXPECT_GT(model.worth(2, 1), 0.9);
	EXPECT_LT(model.worth(2, 2), 0.1) << "missed";
}

TEST(Reuse, WhatWasSeenLongAgoIsForgotten)
{
	ReuseModel model(1000);
	model.watched(1, 0, 64'000);
	for (int i = 0; i < 1000; i++)
		model.used(1, 64);
	model.learn(0);
	double before = model.worth(1, 60);
	for (int i = 0; i < 1000; i++)
		model.watched(1, 0, 64'000);
	model.learn(20'000);
	EXPECT_LT(model.worth(1, 60), before / 10);
}

TEST(Reuse, APrefixLeavesFromItsTail)
{
	PrefixCache cache(100);
	cache.use(chain(0, 80), 1000);
	EXPECT_EQ(cache.use(chain(1000, 60), 2000), 0u);
	uint32_t resident = 0;
	while (cache.resident(resident))
		resident++;
	for (uint32_t b = resident; b < 80; b++)
		EXPECT_FALSE(cache.resident(b))
			<< "a hole at " << resident << " and " << b << " behind it";
	uint32_t nr = 0;
	for (uint32_t b = 0; b < 2000; b++)
		nr += cache.resident(b);
	EXPECT_EQ(nr, 100u);
}

TEST(Reuse, APrefixThatManyShareOutlivesItsBranches)
{
	PrefixCache cache(64);
	for (uint32_t i = 0; i < 200; i++) {
		std::vector<uint32_t> blocks = chain(0, 32);
		for (uint32_t b : chain(100 + 40 * i, 40))
			blocks.push_back(b);
		uint32_t hits = cache.use(blocks, 1000 * i);
		EXPECT_EQ(hits, i ? 32u : 0u);
	}
}

TEST(Reuse, AChainLongerThanTheCacheKeepsItsHead)
{
	PrefixCache cache(10);
	cache.use(chain(0, 50), 1);
	EXPECT_EQ(cache.use(chain(0, 50), 2), 10u);
	for (uint32_t b = 0; b < 50; b++)
		EXPECT_EQ(cache.resident(b), b < 10);
}

TEST(Reuse, SessionsThatReturnAreKeptAndScansAreNot)
{
	PrefixCache cache(100);
	uint64_t hits = 0, wanted = 0;
	/* One session of 50 blocks comes every 10 s; between them one-off requests of 200 blocks.
	 */
	for (uint32_t i = 0; i < 400; i++) {
		uint32_t got = cache.use(chain(0, 50), 10'000ull * i);
		if (i >= 100) {
			hits += got;
			wanted += 50;
		}
		for (uint32_t j = 1; j < 5; j++)
			cache.use(chain(1000 + (i * 5 + j) * 200, 200), 10'000ull * i + 2000 * j);
	}
	EXPECT_GT(hits, wanted * 9 / 10) << "LRU has none";
}

TEST(Reuse, OddChainsAreHarmless)
{
	PrefixCache cache(4);
	std::vector<uint32_t> same = {5, 5, 5}, loop = {1, 2, 1, 3, 2, 1}, back = {2, 1}, none;
	for (uint64_t now : {5, 4, 1000, 0})
		for (const auto &blocks : {same, loop, back, none, chain(0, 9)})
			cache.use(blocks, now);
	uint32_t nr = 0;
	for (uint32_t b = 0; b < 20; b++)
		nr += cache.resident(b);
	EXPECT_EQ(nr, 4u);
}
