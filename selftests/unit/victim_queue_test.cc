/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The order in which blocks leave, and what the policy's books of them cost. */
#include "core/planner.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <malloc.h>
#include <random>

using namespace cxlkv;

namespace {

/* Blocks as the queue asks for them, and what a scan made of them. */
struct Blocks {
	std::vector<VictimQueue::Place> places;
	std::vector<uint32_t> visited, removed;
	size_t wanted = SIZE_MAX;

	void place_soon(uint32_t) {}
	void visit_soon(uint32_t) {}
	VictimQueue::Place place(uint32_t block) { return places.at(block); }
	void gone(uint32_t block) { removed.push_back(block); }
	double rank(uint8_t, uint32_t step) { return step; }
	void visit(uint32_t block) { visited.push_back(block); }
	bool more() { return visited.size() < wanted; }
	bool enough() { return visited.size() >= wanted; }
};

uint64_t resident_bytes()
{
	uint64_t pages = 0, size;
	std::ifstream("/proc/self/statm") >> size >> pages;
	return pages * 4096;
}

} // namespace

TEST(VictimQueue, TheOldestComeFirstWhateverTheirKindAndEachOnce)
{
	ChunkPool pool;
	VictimQueue queue(pool);
	Blocks blocks;
	std::mt19937 random(1);
	uint32_t now = 1;

	for (uint32_t b = 0; b < 20'000; b++) {
		/* From step to step, and now and then far ahead: every width of bucket. */
		now += random() % 8 ? random() % 3 : random() % (1u << random() % 20);
		blocks.places.push_back({true, VictimQueue::Normal, uint8_t(random() % 41), now});
		queue.push(blocks.places.back(), b, now);
	}
	queue.scan(VictimQueue::Normal, now, blocks);
	ASSERT_EQ(blocks.visited.size(), blocks.places.size());
	EXPECT_TRUE(blocks.removed.empty());
	for (size_t i = 1; i < blocks.visited.size(); i++) {
		uint32_t a = blocks.places[blocks.visited[i - 1]].step,
			 b = blocks.places[blocks.visited[i]].step;
		/* Exact for what is young, else within an eighth of the age. */
		ASSERT_LE(a, b + (now - b < 2048 - 256 ? 0 : (now - b) / 7)) << i;
	}
	std::sort(blocks.visited.begin(), blocks.visited.end());
	EXPECT_EQ(std::unique(blocks.visited.begin(), blocks.visited.end()), blocks.visited.end());
}

TEST(VictimQueue, EntriesArePutRightAndThoseOfBlocksThatLeftAreRemoved)
{
	ChunkPool pool;
	VictimQueue queue(pool);
	Blocks blocks;
	for (uint32_t b = 0; b < 1000; b++) {
		blocks.places.push_back({true, VictimQueue::Normal, 0, b / 10 + 1});
		queue.push(blocks.places[b], b, 100);
	}
	for (uint32_t b = 0; b < 1000; b += 4) {
		blocks.places[b].step = 200; /* accessed */
		blocks.places[b + 1].here = false;
	}
	blocks.places[2].band = VictimQueue::Kept; /* pinned */
	queue.scan(VictimQueue::Normal, 200, blocks);
	EXPECT_EQ(blocks.removed.size(), 250u);
	ASSERT_EQ(blocks.visited.size(), 749u);
	for (uint32_t i = 0; i < 749; i++)
		EXPECT_EQ(blocks.visited[i] % 4 == 0, i >= 499) << "what was accessed comes last";
	EXPECT_EQ(queue.nr_entries(), 750u);
}

TEST(VictimQueue, AScanThatHasEnoughLeavesTheRestOfABucket)
{
	ChunkPool pool;
	VictimQueue queue(pool);
	Blocks blocks;
	for (uint32_t b = 0; b < 100'000; b++) {
		blocks.places.push_back({true, VictimQueue::Normal, 0, 1});
		queue.push(blocks.places[b], b, 1);
	}
	blocks.wanted = 1000;
	queue.scan(VictimQueue::Normal, 1, blocks);
	EXPECT_LT(blocks.visited.size(), 1100u);
	std::vector<uint32_t> first = std::move(blocks.visited);
	blocks.visited.clear();
	queue.scan(VictimQueue::Normal, 1, blocks);
	EXPECT_LT(blocks.visited.size(), 1100u);
	for (uint32_t block : blocks.visited)
		EXPECT_GE(block, 100'000u - 1100)
			<< "the same are first again: the tail of a sequence";
	blocks.wanted = SIZE_MAX;
	queue.scan(VictimQueue::Normal, 1, blocks);
	EXPECT_EQ(blocks.visited.size(), 100'000 + first.size()) << "and none was lost";
}

/* design.md section 6: 24 bytes a block, which is 120 MiB for a 128K context of 640 heads. */
TEST(VictimQueue, BooksOfALongContextTake24BytesABlockInAnyOrderOfUse)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	GTEST_SKIP() << "counts resident memory, of which the sanitizer takes some";
#endif
	Geometry g;
	g.nr_slots = 1;
	g.nr_layers = 80;
	g.nr_kv_heads = 8;
	g.head_dim = 128;
	g.elem_bytes = 2;
	g.tokens_per_block = 16;
	g.tokens_per_slot = 128 << 10;
	g.block_bytes = 8192;
	g.layer_window.assign(g.nr_layers, 0);
	ASSERT_EQ(g.nr_blocks(), 5'242'880u);

	uint64_t before = resident_bytes(), now_ms = 1'000'000;
	PolicyOptions options;
	StepClock clock;
	SessionCounters counters;
	Arenas arenas;
	arenas[0] = std::make_unique<ArenaState>(0, g, options, clock, counters);
	ArenaState &arena = *arenas[0];
	arena.moved(0, g.nr_blocks(), Where::Hot, now_ms);
	std::mt19937 random(1);
	for (int step = 0; step < 400; step++) {
		now_ms += 1000;
		cxl_kv_hint hint = {};
		hint.kind = CXL_KV_HINT_POSITION;
		arena.hint(hint, now_ms);
		hint.kind = CXL_KV_HINT_SCORE;
		hint.nr_blocks = 1;
		for (int i = 0; i < 10'000; i++) {
			hint.head = static_cast<uint32_t>(random()) % 640;
			hint.block = static_cast<uint32_t>(random()) % 8192;
			hint.score = static_cast<uint16_t>(700 + random() % 64'000);
			arena.hint(hint, now_ms);
		}
		/* Demoted, and other blocks promoted: entries of both queues become old. */
		PlanInput input;
		input.now_ms = now_ms;
		uint64_t used = uint64_t{g.nr_blocks()} * 8192, limit = used - 10'000 * 8192ull;
		input.hot = {used, limit, limit, limit};
		input.warm.limit_bytes = input.warm.high_bytes = 1ull << 50;
		input.move_budget_bytes = 10'000 * 8192ull;
		for (const Order &order : Planner(arenas, options, counters, input).run())
			arena.moved(order.extent.first, order.extent.nr,
				    order.action == Action::Demote ? Where::Warm : Where::Hot,
				    now_ms);
		arena.moved(static_cast<uint32_t>(step) * 10'000, 10'000,
			    step % 2 ? Where::Hot : Where::Warm, now_ms);
	}
	malloc_trim(0); /* what a plan needed while it ran is not of the books */
	uint64_t bytes = resident_bytes() - before;
	EXPECT_LE(bytes, 120ull << 20);
	EXPECT_LE(bytes, 24ull * g.nr_blocks());
	EXPECT_GE(bytes, 20ull * g.nr_blocks()) << "not counted";
	printf("# %.2f bytes a block\n", static_cast<double>(bytes) / g.nr_blocks());
}
