// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * libcxl_kv's arenas against a manager that the test plays: what is registered,
 * leases, hints, and requests that meet a lost, silent or new manager.
 */
#include "lib/client_fixture.h"

#include <atomic>
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <future>
#include <grp.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

using namespace cxlkv;
using namespace std::chrono_literals;

namespace {

using Reply = FakeManager::Reply;
using Request = FakeManager::Request;
using nlohmann::json;

constexpr cxl_kv_geometry geometry{
	.nr_slots = 2,
	.nr_layers = 2,
	.nr_kv_heads = 2,
	.head_dim = 64,
	.elem_bytes = 2,
	.tokens_per_block = 16,
	.tokens_per_slot = 128,
	.block_bytes = 4096,
};
constexpr uint32_t nr_blocks = 2 * 4 * 8;

class ArenaTest : public ClientFixture {
protected:
	/* The manager's view of the registered arena. */
	struct Registered {
		json body;
		std::vector<Fd> files;
		Mapping table, ring;
	};

	void SetUp() override { start(); }
	~ArenaTest() override
	{
		set_script({}); /* it refers to what the test has left */
		cxl_kv_arena_destroy(arena_);
	}

	void start()
	{
		manager_ = std::make_unique<FakeManager>(socket_.path(),
							 [this](Request &r) { return serve(r); });
	}

	/* Registers arenas under ever new numbers; all other requests are the test's, or agreed to.
	 */
	Reply serve(Request &request)
	{
		std::lock_guard guard(lock_);

		requests_.push_back(request.body);
		if (request.body["op"] == "register") {
			registered_.push_back(take(request));
			return FakeManager::ok(request, {{"arena", registered_.size()},
							 {"key", "18446744073709551615"}});
		}
		return script_ ? script_(request) : FakeManager::agree(request);
	}

	static Registered take(Request &request)
	{
		Registered result{request.body, std::move(request.files), {}, {}};
		auto map = [&](size_t file) {
			struct stat st {};

			if (result.files.size() <= file || fstat(result.files[file].get(), &st))
				return Mapping{};
			void *at = mmap(nullptr, static_cast<size_t>(st.st_size),
					PROT_READ | PROT_WRITE, MAP_SHARED,
					result.files[file].get(), 0);
			return Mapping{at, static_cast<size_t>(st.st_size)};
		};

		result.table = map(2);
		result.ring = map(3);
		return result;
	}

	/* Throws, which ends the test: without an arena nothing else means anything. */
	void create(uint32_t loss_deadline_ms = 10000, cxl_kv_loss on_loss = CXL_KV_LOSS_WAIT)
	{
		cxl_kv_options with = options();

		with.loss_deadline_ms = loss_deadline_ms;
		with.on_manager_loss = on_loss;
		int rc = open(with);
		if (!rc)
			rc = cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_);
		if (rc)
			throw std::runtime_error(strerror(-rc) + (": " + messages()));
	}

	std::atomic_ref<uint64_t> word(uint32_t block)
	{
		return std::atomic_ref(
			reinterpret_cast<uint64_t *>(registered_.back().table.data())[block]);
	}
	void set_states(uint32_t first, uint32_t nr, cxl_kv_state state)
	{
		for (uint32_t block = first; block < first + nr; block++) {
			uint64_t seen = word(block).load();

			while (!word(block).compare_exchange_weak(
				seen, (seen & ~CXL_KV_WORD_STATE_MASK) | state |
					      7ull << CXL_KV_WORD_GENERATION_SHIFT))
				;
		}
	}
	uint64_t leases(uint32_t block)
	{
		return (word(block).load() & CXL_KV_WORD_LEASES_MASK) >> CXL_KV_WORD_LEASES_SHIFT;
	}
	uint64_t all_leases()
	{
		uint64_t sum = 0;

		for (uint32_t block = 0; block < nr_blocks; block++)
			sum += leases(block);
		return sum;
	}
	cxl_kv_ring *ring()
	{
		return reinterpret_cast<cxl_kv_ring *>(registered_.back().ring.data());
	}
	cxl_kv_hint *ring_entries()
	{
		return reinterpret_cast<cxl_kv_hint *>(registered_.back().ring.data() +
						       CXL_KV_RING_ENTRIES_OFFSET);
	}

	size_t nr_requests()
	{
		std::lock_guard guard(lock_);
		return requests_.size();
	}
	json last_request()
	{
		std::lock_guard guard(lock_);
		return requests_.back();
	}
	void set_script(FakeManager::Script script)
	{
		std::lock_guard guard(lock_);
		script_ = std::move(script);
	}

	std::unique_ptr<FakeManager> manager_;
	cxl_kv_arena *arena_ = nullptr;
	std::mutex lock_;
	FakeManager::Script script_;
	std::vector<json> requests_;
	std::vector<Registered> registered_;
};

Reply silence()
{
	return {.text = "", .file = Fd{}};
}

Reply hang_up()
{
	return {.text = "", .hang_up = true, .file = Fd{}};
}

TEST_F(ArenaTest, RegistersSealedFilesOfTheRightSizes)
{
	const std::vector<uint32_t> window{0, 64};
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	ASSERT_EQ(open(), 0);
	ASSERT_EQ(cxl_kv_arena_create(kv_, &geometry, window.data(), &arena_), 0) << messages();
	const Registered &arena = registered_.at(0);
	ASSERT_EQ(arena.files.size(), 4u);
	auto bytes = [&](size_t file) {
		struct stat st {};
		fstat(arena.files[file].get(), &st);
		return static_cast<uint64_t>(st.st_size);
	};
	EXPECT_EQ(bytes(0), uint64_t{nr_blocks} * 4096);
	EXPECT_EQ(bytes(2), uint64_t{nr_blocks} * 8);
	EXPECT_EQ(bytes(3), 4096 + arena.body["ring_entries"].get<uint64_t>() * 32);
	for (size_t file : {0, 2, 3})
		EXPECT_EQ(fcntl(arena.files[file].get(), F_GET_SEALS), seals) << file;
	char link[64] = {};
	std::string self = "/proc/self/fd/" + std::to_string(arena.files[1].get());
	ASSERT_GT(readlink(self.c_str(), link, sizeof(link) - 1), 0);
	EXPECT_STREQ(link, "anon_inode:[userfaultfd]");

	EXPECT_EQ(arena.body["geometry"]["block_bytes"], 4096);
	EXPECT_EQ(arena.body["geometry"].size(), 8u);
	EXPECT_EQ(arena.body["layer_window"], (json{0, 64}));
	EXPECT_FALSE(arena.body.contains("key"));
	EXPECT_EQ(arena.body["base"],
		  std::to_string(reinterpret_cast<uintptr_t>(cxl_kv_arena_base(arena_))));
	EXPECT_EQ(ring()->nr_entries, arena.body["ring_entries"]);
}

TEST_F(ArenaTest, AddressesFollowTheBlockIndex)
{
	create();
	char *base = static_cast<char *>(cxl_kv_arena_base(arena_));

	EXPECT_EQ(cxl_kv_block(arena_, 0, 0, 0), base);
	EXPECT_EQ(cxl_kv_block(arena_, 1, 2, 3), base + ((1 * 4 + 2) * 8 + 3) * 4096);
	EXPECT_EQ(cxl_kv_block(arena_, 2, 0, 0), nullptr);
	EXPECT_EQ(cxl_kv_block(arena_, 0, 4, 0), nullptr);
	EXPECT_EQ(cxl_kv_block(arena_, 0, 0, 8), nullptr);
	set_states((1 * 4 + 2) * 8 + 3, 1, CXL_KV_COLD);
	EXPECT_EQ(cxl_kv_block_word(arena_, 1, 2, 3) & CXL_KV_WORD_STATE_MASK, CXL_KV_COLD);
	EXPECT_EQ(cxl_kv_block_word(arena_, 9, 0, 0), 0u);
}

TEST_F(ArenaTest, RefusedOrStrangeRegistrationIsAnErrorAndLeavesNothing)
{
	ASSERT_EQ(open(), 0);
	manager_.reset();
	for (const auto &[fields, error] : std::vector<std::pair<json, int>>{
		     {{{"error", "EPERM"}}, -EPERM},
		     {{{"ok", true}, {"key", "1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", -1}, {"key", "1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1ull << 32}, {"key", "1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", "1"}, {"key", "1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", 1}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", "0"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", "-1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", "18446744073709551616"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", "12x"}}, -EPROTO},
	     }) {
		FakeManager manager(socket_.path(), [&](Request &request) {
			json answer = fields;

			if (request.body["op"] == "hello")
				return FakeManager::agree(request);
			answer["id"] = request.body["id"];
			return Reply{.text = answer.dump() + "\n", .file = Fd{}};
		});
		EXPECT_EQ(cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_), error) << fields;
		EXPECT_EQ(arena_, nullptr);
	}
}

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
	EXPECT_EQ(cxl_kv_session_open(arena_, 2), -EINVAL);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 2, 0), -EINVAL);
	EXPECT_EQ(all_leases(), 0u);
}

TEST_F(ArenaTest, TheLongestRequestFitsALine)
{
	/* Every other block, so that no two ranges become one. */
	std::vector<cxl_kv_range> ranges;
	cxl_kv_geometry large = geometry;

	large.nr_slots = 65536;
	large.tokens_per_slot = 16 * 4096;
	ASSERT_EQ(open(), 0);
	ASSERT_EQ(cxl_kv_arena_create(kv_, &large, nullptr, &arena_), 0) << messages();
	for (uint32_t i = 0; i < CXL_KV_MAX_RANGES; i++)
		ranges.push_back({65535, i % 4, 4094 - 2 * (i / 4), 1});
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
	std::atomic<int> nr_failed{0};

	create();
	set_states(0, 1, CXL_KV_RESIDENT);
	for (int t = 0; t < 4; t++)
		threads.emplace_back([&] {
			for (int i = 0; i < 100000; i++) {
				nr_failed += cxl_kv_lease(arena_, &range, 1, 0, nullptr) != 0;
				nr_failed += cxl_kv_unlease(arena_, &range, 1) != 0;
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(nr_failed, 0);
	EXPECT_EQ(leases(0), 0u);
}

TEST_F(ArenaTest, AnswersMayComeInAnotherOrder)
{
	std::string held;

	create();
	set_script([&](Request &request) {
		Reply reply = FakeManager::ok(request);

		if (request.body["op"] == "park") {
			held = reply.text;
			return silence();
		}
		reply = FakeManager::error(request, "EBUSY");
		reply.text += held;
		return reply;
	});
	size_t before = nr_requests();
	auto park = std::async(std::launch::async, [&] { return cxl_kv_session_park(arena_, 0); });
	ASSERT_TRUE(eventually([&] { return nr_requests() > before; }));
	EXPECT_EQ(cxl_kv_session_close(arena_, 1), -EBUSY);
	EXPECT_EQ(park.get(), 0);
}

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

TEST_F(ArenaTest, NewManagerGetsTheSameFilesByKey)
{
	auto inode = [](const Fd &fd) {
		struct stat st {};
		fstat(fd.get(), &st);
		return st.st_ino;
	};

	create();
	manager_.reset();
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	start();
	ASSERT_TRUE(eventually([&] { return cxl_kv_connected(kv_); }));
	ASSERT_EQ(registered_.size(), 2u);
	EXPECT_EQ(registered_[1].body["key"], "18446744073709551615");
	EXPECT_EQ(registered_[1].body["geometry"], registered_[0].body["geometry"]);
	EXPECT_EQ(registered_[1].body["base"], registered_[0].body["base"]);
	ASSERT_EQ(registered_[1].files.size(), 4u);
	for (size_t file : {0, 2, 3})
		EXPECT_EQ(inode(registered_[1].files[file]), inode(registered_[0].files[file]));
}

TEST_F(ArenaTest, LostRequestIsSentAgainUnderTheNewNumber)
{
	const cxl_kv_range range{0, 0, 0, 8};
	std::atomic<int> nr_fetches{0};

	create();
	set_states(0, nr_blocks, CXL_KV_COLD);
	set_script([&](Request &request) {
		if (request.body["op"] != "fetch")
			return FakeManager::agree(request);
		return ++nr_fetches == 1 ? hang_up() : FakeManager::ok(request);
	});
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 100, nullptr), 0);
	EXPECT_EQ(nr_fetches, 2);
	EXPECT_EQ(last_request()["arena"], 2);
	EXPECT_EQ(all_leases(), 8u);
}

TEST_F(ArenaTest, SessionOpenedTwiceByLossIsOpen)
{
	std::atomic<int> nr_opens{0};

	create();
	set_script([&](Request &request) {
		if (request.body["op"] != "session")
			return FakeManager::agree(request);
		return ++nr_opens == 1 ? hang_up() : FakeManager::error(request, "EBUSY");
	});
	EXPECT_EQ(cxl_kv_session_open(arena_, 0), 0);
	EXPECT_EQ(nr_opens, 2);
	EXPECT_EQ(cxl_kv_session_open(arena_, 0), -EBUSY) << "sent once: somebody else has it";
}

TEST_F(ArenaTest, RegistrationLostInTheMiddleIsDoneAgain)
{
	std::atomic<bool> once{false};

	manager_ = nullptr;
	manager_ = std::make_unique<FakeManager>(socket_.path(), [&](Request &request) {
		if (request.body["op"] == "register" && !once.exchange(true))
			return hang_up();
		return serve(request);
	});
	create();
	EXPECT_EQ(registered_.size(), 1u);
	EXPECT_FALSE(registered_[0].body.contains("key"));
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), 0);
}

TEST_F(ArenaTest, RegistrationLostRightAfterItsAnswerIsDoneAgainByKey)
{
	std::atomic<bool> once{false};

	manager_ = nullptr;
	manager_ = std::make_unique<FakeManager>(socket_.path(), [&](Request &request) {
		bool first = request.body["op"] == "register" && !once.exchange(true);
		Reply reply = serve(request);

		reply.hang_up = first;
		return reply;
	});
	create();
	EXPECT_TRUE(eventually([&] {
		std::lock_guard guard(lock_);
		return registered_.size() == 2 && registered_[1].body.contains("key");
	}));
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), 0);
	EXPECT_EQ(last_request()["arena"], 2);
}

TEST_F(ArenaTest, LossWithWaitEndsAtItsDeadline)
{
	const cxl_kv_range range{0, 0, 0, 8};

	create(200);
	set_states(0, nr_blocks, CXL_KV_COLD);
	manager_.reset();
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 10, nullptr), -ETIMEDOUT);
	EXPECT_EQ(all_leases(), 0u);
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), -ETIMEDOUT);
}

TEST_F(ArenaTest, SilentManagerEndsAtTheDeadlineAndItsLateAnswerIsIgnored)
{
	std::string late;

	create(200);
	set_script([&](Request &request) {
		Reply reply = FakeManager::ok(request);

		if (request.body["op"] != "park")
			return reply;
		late += reply.text;
		return silence();
	});
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), -ETIMEDOUT);
	{
		std::lock_guard guard(lock_);
		manager_->say(late);
	}
	EXPECT_EQ(cxl_kv_session_wake(arena_, 0, 10), 0);
	EXPECT_EQ(last_request()["wait"], true);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 0, 0), 0);
	EXPECT_EQ(last_request()["wait"], false);
	EXPECT_GT(last_request()["deadline_ms"], 0) << "not waiting is not giving up at once";
}

TEST_F(ArenaTest, LossWithFailAnswersAtOnce)
{
	const cxl_kv_range range{0, 0, 0, 8};

	create(60000, CXL_KV_LOSS_FAIL);
	set_states(0, nr_blocks, CXL_KV_COLD);
	set_script([&](Request &request) {
		return request.body["op"] == "fetch" ? hang_up() : FakeManager::agree(request);
	});
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 10, nullptr), -ENOTCONN)
		<< "lost while it waited";
	EXPECT_EQ(all_leases(), 0u);
	manager_.reset();
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), -ENOTCONN);
	start();
	EXPECT_TRUE(eventually([&] { return cxl_kv_connected(kv_); }));
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), 0);
}

TEST_F(ArenaTest, ManyWaitersSurviveALoss)
{
	std::atomic<int> nr_parks{0}, nr_failed{0};
	std::vector<std::thread> threads;

	create();
	set_script([&](Request &request) {
		if (request.body["op"] != "park")
			return FakeManager::agree(request);
		int nr = ++nr_parks;
		return nr < 8 ? silence() : nr == 8 ? hang_up() : FakeManager::ok(request);
	});
	for (int i = 0; i < 8; i++)
		threads.emplace_back([&] { nr_failed += cxl_kv_session_park(arena_, 0) != 0; });
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(nr_failed, 0);
	EXPECT_EQ(nr_parks, 16);
}

TEST_F(ArenaTest, DestroyUnregistersAndUnmaps)
{
	create();
	void *base = cxl_kv_arena_base(arena_);
	unsigned char present;

	EXPECT_EQ(mincore(base, 4096, &present), 0);
	cxl_kv_arena_destroy(std::exchange(arena_, nullptr));
	EXPECT_EQ(last_request()["op"], "unregister");
	EXPECT_EQ(last_request()["arena"], 1);
	EXPECT_EQ(mincore(base, 4096, &present), -1);
	/* A new manager does not hear of it any more. */
	manager_.reset();
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	start();
	ASSERT_TRUE(eventually([&] { return cxl_kv_connected(kv_); }));
	EXPECT_EQ(registered_.size(), 1u);
}

TEST_F(ArenaTest, ForkedChildHasNeitherMemoryNorCalls)
{
	const cxl_kv_range range{0, 0, 0, 1};
	int status = 0;

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	size_t before = nr_requests();
	pid_t child = fork();
	if (!child) {
		unsigned char present;
		int wrong = 0;

		wrong |= (cxl_kv_lease(arena_, &range, 1, 0, nullptr) != -EPERM) << 0;
		wrong |= (cxl_kv_hint_position(arena_, 0, 0) != -EPERM) << 1;
		wrong |= (cxl_kv_session_open(arena_, 0) != -EPERM) << 2;
		wrong |= (cxl_kv_block(arena_, 0, 0, 0) != nullptr) << 3;
		wrong |= (cxl_kv_block_word(arena_, 0, 0, 0) != 0) << 4;
		wrong |= (mincore(cxl_kv_arena_base(arena_), 4096, &present) != -1) << 5;
		cxl_kv_close(kv_);
		_exit(wrong);
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(nr_requests(), before) << "the child's close told the manager something";
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 0, nullptr), 0);
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), 0);
}

/* Runs in a child that has given its rights away, with the device file from the manager or without.
 */
int open_and_create_as_nobody(const cxl_kv_options &options)
{
	cxl_kv *kv;
	cxl_kv_arena *arena;
	int status = 0;

	pid_t child = fork();
	if (!child) {
		if (setgroups(0, nullptr) || setresgid(65534, 65534, 65534) ||
		    setresuid(65534, 65534, 65534))
			_exit(100);
		int rc = cxl_kv_open(&options, &kv);
		if (!rc)
			rc = cxl_kv_arena_create(kv, &geometry, nullptr, &arena);
		_exit(-rc);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : status;
}

TEST_F(ArenaTest, UnprivilegedClientUsesTheManagersDevice)
{
	std::atomic<bool> with_device{true};
	cxl_kv_options with = options();

	if (geteuid() != 0 || access("/dev/userfaultfd", R_OK | W_OK))
		GTEST_SKIP() << "needs root and /dev/userfaultfd";
	with.log = [](void *, const char *) {};
	manager_ = nullptr;
	manager_ = std::make_unique<FakeManager>(socket_.path(), [&](Request &request) {
		Reply reply = serve(request);

		if (request.body["op"] == "hello" && with_device)
			reply.file.reset(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
		return reply;
	});
	ASSERT_EQ(chmod(socket_.path().substr(0, socket_.path().rfind('/')).c_str(), 0755), 0);
	ASSERT_EQ(chmod(socket_.path().c_str(), 0666), 0);
	EXPECT_EQ(open_and_create_as_nobody(with), 0);
	with_device = false;
	EXPECT_EQ(open_and_create_as_nobody(with), -EPERM);
}

TEST_F(ArenaTest, StrangeDeviceFileIsNotUsed)
{
	set_script([](Request &request) {
		Reply reply = FakeManager::agree(request);

		reply.file.reset(::open(request.body["op"] == "hello" ? "/dev/null" : "/etc/passwd",
					O_RDONLY | O_CLOEXEC));
		return reply;
	});
	create(); /* by our own rights */
	EXPECT_EQ(registered_.size(), 1u);
}

} // namespace
