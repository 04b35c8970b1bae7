// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What a hint in the ring and a lease on a block in memory cost an engine's
 * thread, beside a memcpy of a hint's bytes in the same run. The manager is the
 * test's own and only takes the hints out.
 */
#include "lib/fake_manager.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <cxl_kv.h>
#include <sys/mman.h>

using namespace cxlkv;

namespace {

constexpr cxl_kv_geometry geometry{
	.nr_slots = 1,
	.nr_layers = 8,
	.nr_kv_heads = 8,
	.head_dim = 64,
	.elem_bytes = 2,
	.tokens_per_block = 16,
	.tokens_per_slot = 1024,
	.block_bytes = 4096,
};
constexpr uint32_t nr_heads = 64, blocks_per_head = 64, nr_blocks = nr_heads * blocks_per_head;
constexpr int nr_rounds = 100, batch = 256;

/* The manager's end of the arena: its table and ring. */
struct Shared {
	std::vector<Fd> files;
	uint64_t *words = nullptr;
	cxl_kv_ring *ring = nullptr;

	void take(std::vector<Fd> from)
	{
		auto map = [&](size_t file, size_t bytes) {
			return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				    files[file].get(), 0);
		};

		files = std::move(from);
		words = static_cast<uint64_t *>(map(2, nr_blocks * 8));
		ring = static_cast<cxl_kv_ring *>(map(3, CXL_KV_RING_ENTRIES_OFFSET));
		std::fill(words, words + nr_blocks, uint64_t{CXL_KV_RESIDENT});
	}
	void drain() const
	{
		std::atomic_ref(ring->tail)
			.store(std::atomic_ref(ring->head).load(std::memory_order_acquire),
			       std::memory_order_release);
	}
};

/* The best of the rounds: what it costs when nobody interrupts. */
template <typename Run> double best_ns(uint32_t nr, Run &&run)
{
	using Clock = std::chrono::steady_clock;
	double best = 1e9;

	for (int i = 0; i < nr_rounds; i++) {
		auto begin = Clock::now();
		run();
		std::chrono::duration<double, std::nano> took = Clock::now() - begin;
		best = std::min(best, took.count() / nr);
	}
	return best;
}

void fill_batch(cxl_kv_hint (&hints)[batch], uint32_t first)
{
	for (int i = 0; i < batch; i++) {
		hints[i] = {};
		hints[i].kind = CXL_KV_HINT_SCORE;
		hints[i].score = 1;
		hints[i].head = (first + i) / blocks_per_head;
		hints[i].block = (first + i) % blocks_per_head;
		hints[i].nr_blocks = 1;
	}
}

void measure(cxl_kv_arena *arena, const Shared &shared)
{
	static cxl_kv_hint copies[nr_blocks], hints[batch];

	fill_batch(hints, 0);
	/* A call of memcpy(3), as copying a message of any length is; inlined it is a fourth of
	 * that. */
	volatile size_t bytes = sizeof(cxl_kv_hint);
	double copy = best_ns(nr_blocks, [&] {
		for (uint32_t i = 0; i < nr_blocks; i++)
			memcpy(&copies[i], &hints[i % batch], bytes);
	});
	double one = best_ns(nr_blocks, [&] {
		for (uint32_t i = 0; i < nr_blocks; i++)
			cxl_kv_send_hint(arena, &hints[i % batch]);
		shared.drain();
	});
	double many = best_ns(nr_blocks, [&] {
		for (uint32_t i = 0; i < nr_blocks; i += batch)
			cxl_kv_send_hints(arena, hints, batch);
		shared.drain();
	});
	double lease = best_ns(nr_blocks, [&] {
		for (uint32_t head = 0; head < nr_heads; head++) {
			const cxl_kv_range range{0, head, 0, blocks_per_head};

			cxl_kv_lease(arena, &range, 1, 0, nullptr);
			cxl_kv_unlease(arena, &range, 1);
		}
	});
	printf("memcpy of a hint          %6.2f ns\n", copy);
	printf("hint, one a call          %6.2f ns  %5.1f memcpy\n", one, one / copy);
	printf("hint, %d a call          %6.2f ns  %5.1f memcpy\n", batch, many, many / copy);
	printf("lease and unlease, block  %6.2f ns\n", lease);
}

} // namespace

int main()
{
	TemporarySocket socket;
	Shared shared;
	FakeManager manager(socket.path(), [&](FakeManager::Request &request) {
		if (request.body["op"] == "register")
			shared.take(std::move(request.files));
		return FakeManager::agree(request);
	});
	cxl_kv_options options{};
	cxl_kv_arena *arena;
	cxl_kv *kv;

	options.size = sizeof(options);
	options.socket_path = socket.path().c_str();
	if (cxl_kv_open(&options, &kv))
		return 1;
	int rc = cxl_kv_arena_create(kv, &geometry, nullptr, &arena);
	if (!rc)
		measure(arena, shared);
	cxl_kv_close(kv);
	return rc ? 1 : 0;
}
