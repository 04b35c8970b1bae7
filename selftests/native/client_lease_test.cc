// SPDX-License-Identifier: LGPL-2.1-or-later
/* Leases and ranges of libcxl_kv against a manager that the test plays. */
#include "lib/client_arena_fixture.h"

#include <barrier>

using namespace cxlkv;

namespace {

TEST_F(ArenaTest, LeaseOfResidentBlocksAsksNobody)
{
	const cxl_kv_range ranges[] = {{0, 0, 0, 8}, {1, 3, 2, 3}};
	uint64_t nr_hits = 0;

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	set_states(3, 1, CXL_KV_SPILLING);
	size_t before = nr_requests();
	ASSERT_EQ(cxl_kv_lease(arena_, ranges, 2, 0, &nr_hits), 0);
	EXPECT_EQ(nr_hits, 11u);
	EXPECT_EQ(all_leases(), 11u);
	EXPECT_EQ(leases(3), 1u);
	ASSERT_EQ(cxl_kv_lease(arena_, ranges, 1, 0, nullptr), 0);
	EXPECT_EQ(leases(3), 2u);
	EXPECT_EQ(cxl_kv_unlease(arena_, ranges, 1), 0);
	EXPECT_EQ(cxl_kv_unlease(arena_, ranges, 2), 0);
	EXPECT_EQ(all_leases(), 0u);
	EXPECT_EQ(word(0).load() >> CXL_KV_WORD_GENERATION_SHIFT, 7u);
	EXPECT_EQ(nr_requests(), before);
	EXPECT_EQ(cxl_kv_lease(arena_, nullptr, 0, 0, nullptr), 0);
}

TEST_F(ArenaTest, LeaseFetchesAllAbsentBlocksAtOnceWithTheLeaseHeld)
{
	/* Heads 0 and 1 meet in the arena; of head 3 only the middle is absent. */
	const cxl_kv_range ranges[] = {{0, 0, 4, 4}, {0, 1, 0, 4}, {0, 3, 0, 8}};
	uint64_t nr_hits = 0, leases_at_fetch = 0;

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	set_states(4, 8, CXL_KV_COLD);
	set_states(26, 1, CXL_KV_PUNCHING);
	set_states(28, 1, CXL_KV_RESTORING);
	set_script([&](Request &request) {
		leases_at_fetch = all_leases();
		for (const auto &range : request.body["ranges"])
			set_states(range[0], range[1], CXL_KV_RESIDENT);
		return FakeManager::ok(request);
	});
	size_t before = nr_requests();
	ASSERT_EQ(cxl_kv_lease(arena_, ranges, 3, 1234, &nr_hits), 0);
	EXPECT_EQ(nr_requests(), before + 1);
	json fetch = last_request();
	EXPECT_EQ(fetch["op"], "fetch");
	EXPECT_EQ(fetch["arena"], 1);
	EXPECT_EQ(fetch["deadline_ms"], 1234);
	EXPECT_EQ(fetch["ranges"], (json{{4, 8}, {26, 3}}));
	EXPECT_EQ(nr_hits, 6u);
	EXPECT_EQ(leases_at_fetch, 16u);
	EXPECT_EQ(all_leases(), 16u);
}

TEST_F(ArenaTest, FailedLeaseGivesExactlyItsOwnLeasesBack)
{
	const cxl_kv_range held{0, 0, 0, 8};
	const cxl_kv_range ranges[] = {{0, 0, 0, 8}, {0, 1, 0, 8}};
	uint64_t nr_hits = 99;

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	ASSERT_EQ(cxl_kv_lease(arena_, &held, 1, 0, nullptr), 0);
	auto fails = [&](int error) {
		EXPECT_EQ(cxl_kv_lease(arena_, ranges, 2, 10, &nr_hits), error);
		EXPECT_EQ(nr_hits, 99u);
		for (uint32_t block = 0; block < nr_blocks; block++)
			EXPECT_EQ(leases(block), block < 8 ? 1u : 0u)
				<< error << " block " << block;
	};

	set_states(12, 1, CXL_KV_EMPTY);
	fails(-ENODATA);
	set_states(12, 1, CXL_KV_LOST);
	fails(-EIO);
	set_states(12, 1, CXL_KV_COLD);
	for (const char *error : {"EBUSY", "EIO", "ENODATA", "ENOMEM"}) {
		set_script([&](Request &request) { return FakeManager::error(request, error); });
		EXPECT_EQ(cxl_kv_lease(arena_, ranges, 2, 10, &nr_hits),
			  std::string(error) == "EBUSY"     ? -EBUSY
			  : std::string(error) == "EIO"     ? -EIO
			  : std::string(error) == "ENODATA" ? -ENODATA
							    : -ENOMEM);
	}
	/* The manager says yes, and writes that the block is lost. */
	set_script([&](Request &request) {
		set_states(12, 1, CXL_KV_LOST);
		return FakeManager::ok(request);
	});
	fails(-EIO);
	set_states(12, 1, CXL_KV_RESIDENT);
	word(12).fetch_or(CXL_KV_WORD_LEASES_MASK);
	EXPECT_EQ(cxl_kv_lease(arena_, ranges, 2, 10, &nr_hits), -EOVERFLOW);
	EXPECT_EQ(leases(12), CXL_KV_WORD_LEASES_MAX);
	EXPECT_EQ(leases(11), 0u);
	EXPECT_EQ(leases(7), 1u);
	EXPECT_EQ(word(12).load() >> CXL_KV_WORD_GENERATION_SHIFT, 7u);
}

TEST_F(ArenaTest, UnleaseNeverGoesBelowZero)
{
	const cxl_kv_range one{0, 0, 3, 1}, all{0, 0, 0, 8};

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), -EINVAL);
	EXPECT_EQ(word(3).load(), CXL_KV_RESIDENT | 7ull << CXL_KV_WORD_GENERATION_SHIFT);
	ASSERT_EQ(cxl_kv_lease(arena_, &one, 1, 0, nullptr), 0);
	EXPECT_EQ(cxl_kv_unlease(arena_, &all, 1), -EINVAL) << "some were not leased";
	EXPECT_EQ(all_leases(), 0u);
}

TEST_F(ArenaTest, RangesAreChecked)
{
	std::vector<cxl_kv_range> many(CXL_KV_MAX_RANGES + 1, {0, 0, 0, 1});

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	for (const cxl_kv_range &range : std::initializer_list<cxl_kv_range>{
		     {2, 0, 0, 1},
		     {0, 4, 0, 1},
		     {0, 0, 8, 1},
		     {0, 0, 0, 0},
		     {0, 0, 0, 9},
		     {0, 0, 7, 2},
		     {0, 0, 1, UINT32_MAX},
		     {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
	     }) {
		EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 0, nullptr), -EINVAL);
		EXPECT_EQ(cxl_kv_unlease(arena_, &range, 1), -EINVAL);
		EXPECT_EQ(cxl_kv_make(arena_, &range, 1, 0), -EINVAL);
		EXPECT_EQ(cxl_kv_drop(arena_, &range, 1), -EINVAL);
		EXPECT_EQ(cxl_kv_seal(arena_, &range), -EINVAL);
	}
	EXPECT_EQ(cxl_kv_lease(arena_, many.data(), many.size(), 0, nullptr), -E2BIG);
	EXPECT_EQ(cxl_kv_lease(arena_, nullptr, 1, 0, nullptr), -EINVAL);
	EXPECT_EQ(cxl_kv_session_open(arena_, 2, nullptr), -EINVAL);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 2, 0, nullptr), -EINVAL);
	EXPECT_EQ(all_leases(), 0u);
}

TEST_F(ArenaTest, TheLongestRequestFitsALine)
{
	/* Every other block, so that no two ranges become one. */
	std::vector<cxl_kv_range> ranges;
	cxl_kv_geometry large = geometry;

#ifdef __SANITIZE_THREAD__
	large.nr_slots = 4096; /* it leaves no room for more; two digits less in each number */
#else
	large.nr_slots = 65536;
#endif
	large.tokens_per_slot = 16 * 4096;
	ASSERT_EQ(open(), 0);
	ASSERT_EQ(cxl_kv_arena_create(kv_, &large, nullptr, &arena_), 0) << messages();
	for (uint32_t i = 0; i < CXL_KV_MAX_RANGES; i++)
		ranges.push_back({large.nr_slots - 1, i % 4, 4094 - 2 * (i / 4), 1});
	EXPECT_EQ(cxl_kv_make(arena_, ranges.data(), ranges.size(), UINT32_MAX), 0);
	EXPECT_EQ(last_request()["ranges"].size(), ranges.size());
}

TEST_F(ArenaTest, MakeAsksOnlyForWhatIsNotMade)
{
	const cxl_kv_range ranges[] = {{0, 0, 0, 8}, {0, 2, 0, 8}};

	create();
	ASSERT_EQ(cxl_kv_make(arena_, ranges, 2, 5), 0);
	EXPECT_EQ(last_request()["ranges"], (json{{0, 8}, {16, 8}}));
	set_states(0, nr_blocks, CXL_KV_COLD);
	size_t before = nr_requests();
	ASSERT_EQ(cxl_kv_make(arena_, ranges, 2, 5), 0);
	EXPECT_EQ(nr_requests(), before);
	set_states(18, 1, CXL_KV_LOST);
	ASSERT_EQ(cxl_kv_make(arena_, ranges, 2, 5), 0);
	EXPECT_EQ(last_request()["ranges"], (json{{18, 1}}));
}

TEST_F(ArenaTest, LateUnleaseLeavesALeaseThatWasMadeSince)
{
	const cxl_kv_range one{0, 0, 0, 1};

	create();
	set_states(0, 1, CXL_KV_RESIDENT);
	ASSERT_EQ(cxl_kv_lease(arena_, &one, 1, 0, nullptr), 0);
	ASSERT_EQ(cxl_kv_lease(arena_, &one, 1, 0, nullptr), 0);
	/* As the manager does it at the limit. */
	word(0) += 2 * CXL_KV_WORD_EXPIRED_ONE - 2 * CXL_KV_WORD_LEASES_ONE;
	word(0) |= CXL_KV_WORD_AGE_MASK;
	ASSERT_EQ(cxl_kv_lease(arena_, &one, 1, 0, nullptr), 0);
	EXPECT_EQ(word(0) & CXL_KV_WORD_AGE_MASK, 0u) << "a new lease is young";
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), 0);
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), 0);
	EXPECT_EQ(leases(0), 1u);
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), 0);
	EXPECT_EQ(leases(0), 0u);
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), -EINVAL);
}

/* What the model found: while it waits for a fetch its time ends, and then the fetch fails. */
TEST_F(ArenaTest, LeaseThatFailsLateLeavesALeaseThatWasMadeSince)
{
	const cxl_kv_range one{0, 0, 0, 1};

	create();
	set_states(0, 1, CXL_KV_COLD);
	set_script([&](Request &request) {
		/* As the manager does it at the limit; then another thread leases. */
		word(0) += CXL_KV_WORD_EXPIRED_ONE - CXL_KV_WORD_LEASES_ONE;
		word(0) += CXL_KV_WORD_LEASES_ONE;
		return FakeManager::error(request, "EIO");
	});
	EXPECT_EQ(cxl_kv_lease(arena_, &one, 1, 1000, nullptr), -EIO);
	EXPECT_EQ(leases(0), 1u);
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), 0);
	EXPECT_EQ(leases(0), 0u);
	EXPECT_EQ(cxl_kv_unlease(arena_, &one, 1), -EINVAL);
}

TEST_F(ArenaTest, ConcurrentLeasesEndAtZero)
{
	std::atomic<bool> stop{false};
	std::atomic<int> nr_failed{0};

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	set_script([&](Request &request) {
		for (const auto &range : request.body["ranges"])
			set_states(range[0], range[1], CXL_KV_RESIDENT);
		return FakeManager::ok(request);
	});
	/* A manager that spills whatever has no lease, by the rules of the word. */
	std::thread spiller([&] {
		for (uint32_t block = 0; !stop; block = (block + 1) % nr_blocks) {
			uint64_t seen = word(block).load();

			if (!(seen & CXL_KV_WORD_LEASES_MASK))
				word(block).compare_exchange_strong(
					seen, (seen & ~CXL_KV_WORD_STATE_MASK) | CXL_KV_COLD);
		}
	});
	std::vector<std::thread> threads;
	for (uint32_t t = 0; t < 4; t++)
		threads.emplace_back([&, t] {
			for (uint32_t i = 0; i < 500; i++) {
				const cxl_kv_range ranges[] = {
					{0, t, 0, 8}, {0, (t + i) % 4, i % 8, 1}, {1, 0, i % 4, 4}};

				if (cxl_kv_lease(arena_, ranges, 3, 1000, nullptr)) {
					nr_failed++;
					continue;
				}
				for (uint32_t b = 0; b < 8; b++)
					nr_failed += (cxl_kv_block_word(arena_, 0, t, b) &
						      CXL_KV_WORD_STATE_MASK) != CXL_KV_RESIDENT;
				nr_failed += cxl_kv_unlease(arena_, ranges, 3) != 0;
			}
		});
	for (auto &thread : threads)
		thread.join();
	stop = true;
	spiller.join();
	EXPECT_EQ(nr_failed, 0);
	EXPECT_EQ(all_leases(), 0u);
}

TEST_F(ArenaTest, NoLeaseIsLostBetweenThreads)
{
	const cxl_kv_range range{0, 0, 0, 1};
	std::vector<std::thread> threads;
	std::barrier together(4);
	std::atomic<int> nr_failed{0};

	create();
	set_states(0, 1, CXL_KV_RESIDENT);
	for (int t = 0; t < 4; t++)
		threads.emplace_back([&] {
			together.arrive_and_wait();
			for (int i = 0; i < 300000; i++) {
				nr_failed += cxl_kv_lease(arena_, &range, 1, 0, nullptr) != 0;
				nr_failed += cxl_kv_unlease(arena_, &range, 1) != 0;
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(nr_failed, 0);
	EXPECT_EQ(leases(0), 0u);
}

} // namespace
