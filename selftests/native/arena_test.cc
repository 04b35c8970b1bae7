/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a client may hand over as an arena, and what it may write into its hint ring. */
#include "lib/arena_client.h"
#include "sys/uffd.h"
#include "sys/uffd_abi.h"

#include <bit>
#include <fcntl.h>
#include <gtest/gtest.h>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

class ArenaFilesTest : public testing::Test {
protected:
	void SetUp() override
	{
		auto made = ArenaClient::create(small_geometry(16));
		ASSERT_TRUE(made) << made.error().what;
		client = std::move(*made);
		files = client->files();
		options.client_base = reinterpret_cast<uint64_t>(client->base());
		options.ring_entries = ArenaClient::ring_entries;
	}

	/* 0 or the errno of the refusal, whose message must name the culprit. */
	int refusal(const std::string &named)
	{
		auto arena = Arena::create(geometry, std::move(files), options);
		files = client->files();
		if (arena)
			return 0;
		EXPECT_NE(arena.error().what.find(named), std::string::npos) << arena.error().what;
		return arena.error().code;
	}

	std::unique_ptr<ArenaClient> client;
	ArenaFiles files;
	ArenaOptions options;
	Geometry geometry = small_geometry(16);
};

TEST_F(ArenaFilesTest, GoodOnesAreTaken)
{
	EXPECT_EQ(refusal(""), 0);
}

TEST_F(ArenaFilesTest, MemoryThatIsNoSealedMemfd)
{
	files.memory = Fd(open("/dev/zero", O_RDWR | O_CLOEXEC));
	EXPECT_EQ(refusal("memory file: not a memfd"), EINVAL);
	files.memory = Fd();
	EXPECT_EQ(refusal("memory file: not a memfd"), EINVAL);
	files.memory = std::move(*sealed_memfd("m", geometry.bytes(), F_SEAL_GROW | F_SEAL_SEAL));
	EXPECT_EQ(refusal("memory file: seals"), EPERM);
	files.memory = std::move(*sealed_memfd("m", geometry.bytes(), F_SEAL_SHRINK | F_SEAL_GROW));
	EXPECT_EQ(refusal("memory file: seals"), EPERM);
	files.memory = std::move(
		*sealed_memfd("m", geometry.bytes(),
			      F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE));
	EXPECT_EQ(refusal("memory file: seals"), EPERM);
}

TEST_F(ArenaFilesTest, WrongSizes)
{
	files.memory = std::move(*sealed_memfd("m", geometry.bytes() - 4096));
	EXPECT_EQ(refusal("memory file"), EINVAL);
	files.memory = std::move(*sealed_memfd("m", geometry.bytes() + 4096));
	EXPECT_EQ(refusal("memory file"), EINVAL);
	files.table = std::move(*sealed_memfd("t", 16 * 8 - 1));
	EXPECT_EQ(refusal("table file"), EINVAL);
	files.table = std::move(*sealed_memfd("t", 4096));
	EXPECT_EQ(refusal(""), 0); /* rounded up to a page */
	files.ring = std::move(*sealed_memfd("r", CXL_KV_RING_ENTRIES_OFFSET));
	EXPECT_EQ(refusal("ring file"), EINVAL);
	options.ring_entries = 65;
	EXPECT_EQ(refusal("ring of 65"), EINVAL);
	options.ring_entries = CXL_KV_RING_MAX_ENTRIES * 2;
	EXPECT_EQ(refusal("ring of"), EINVAL);
}

TEST_F(ArenaFilesTest, UserfaultfdThatIsNone)
{
	files.uffd = Fd(open("/dev/null", O_RDWR | O_CLOEXEC));
	EXPECT_EQ(refusal("not a userfaultfd"), EINVAL);
	auto device = uffd::open_device();
	ASSERT_TRUE(device);
	files.uffd = std::move(*uffd::create(device->get(), 0));
	EXPECT_EQ(refusal("features"), EINVAL);
	/* Its events would put files into the daemon's table. */
	files.uffd = std::move(
		*uffd::create(device->get(), uffd::required_features | UFFD_FEATURE_EVENT_FORK));
	EXPECT_EQ(refusal("features"), EINVAL);
}

TEST_F(ArenaFilesTest, AddressAndGeometry)
{
	options.client_base = 0;
	EXPECT_EQ(refusal("arena at"), EINVAL);
	options.client_base = 4097;
	EXPECT_EQ(refusal("arena at"), EINVAL);
	options.client_base = ~0ull - 4095;
	EXPECT_EQ(refusal("arena at"), EINVAL);
	geometry.block_bytes = 3 << 12;
	EXPECT_EQ(refusal("block_bytes"), EINVAL);
}

/* cxl_kv_hint with defaults. */
struct Hint {
	uint8_t kind = 0, priority = 0;
	uint16_t score = 0;
	uint32_t slot = 0, head = 0, block = 0, nr_blocks = 0, position = 0, lifetime_ms = 0,
		 reserved = 0;
};

class HintRing : public ArenaFilesTest {
protected:
	void SetUp() override
	{
		ArenaFilesTest::SetUp();
		auto made = client->arena(1, 1);
		ASSERT_TRUE(made) << made.error().what;
		arena = *made;
	}

	void push(const Hint &hint)
	{
		uint32_t head = client->ring()->head;
		client->hints()[head % ArenaClient::ring_entries] =
			std::bit_cast<cxl_kv_hint>(hint);
		std::atomic_ref(client->ring()->head).store(head + 1, std::memory_order_release);
	}

	std::shared_ptr<Arena> arena;
};

TEST_F(HintRing, GoodHintsComeOutInOrderAndAtMostMax)
{
	for (uint32_t i = 0; i < 10; i++)
		push({.kind = CXL_KV_HINT_SCORE,
		      .score = static_cast<uint16_t>(i),
		      .block = i,
		      .nr_blocks = 1});
	push({.kind = CXL_KV_HINT_PIN,
	      .priority = 100,
	      .block = 3,
	      .nr_blocks = 13,
	      .lifetime_ms = 5});
	push({.kind = CXL_KV_HINT_POSITION, .position = 7});
	auto first = arena->drain_hints(4);
	ASSERT_EQ(first.size(), 4u);
	EXPECT_EQ(first[3].score, 3u);
	auto rest = arena->drain_hints(100);
	ASSERT_EQ(rest.size(), 8u);
	EXPECT_EQ(rest[0].score, 4u);
	EXPECT_EQ(rest[7].position, 7u);
	EXPECT_TRUE(arena->drain_hints(100).empty());
	EXPECT_EQ(arena->nr_hints, 12u);
	EXPECT_EQ(arena->nr_bad_hints, 0u);
}

TEST_F(HintRing, GarbageEntriesAreCountedAndLeftOut)
{
	const Hint bad[] = {
		{},
		{.kind = 9},
		{.kind = CXL_KV_HINT_PARK, .slot = 1},
		{.kind = CXL_KV_HINT_PARK, .nr_blocks = 1},
		{.kind = CXL_KV_HINT_PARK, .reserved = 1},
		{.kind = CXL_KV_HINT_PHASE, .position = 2},
		{.kind = CXL_KV_HINT_POSITION, .position = 0xffffffff},
		{.kind = CXL_KV_HINT_SCORE, .head = 1, .nr_blocks = 1},
		{.kind = CXL_KV_HINT_SCORE, .block = 16, .nr_blocks = 1},
		{.kind = CXL_KV_HINT_SCORE, .block = 1, .nr_blocks = 16},
		{.kind = CXL_KV_HINT_SCORE, .block = 15, .nr_blocks = 0xffffffff},
		{.kind = CXL_KV_HINT_SCORE, .block = 1, .nr_blocks = 0},
		{.kind = CXL_KV_HINT_SEAL, .score = 1, .nr_blocks = 1},
		{.kind = CXL_KV_HINT_SEAL, .priority = 1, .nr_blocks = 1},
		{.kind = CXL_KV_HINT_PIN, .priority = 101, .nr_blocks = 1},
		{.kind = CXL_KV_HINT_DROP, .nr_blocks = 1, .lifetime_ms = 1},
	};
	for (const Hint &hint : bad)
		push(hint);
	push({.kind = CXL_KV_HINT_WAKE});
	EXPECT_EQ(arena->drain_hints(100).size(), 1u);
	EXPECT_EQ(arena->nr_bad_hints, std::size(bad));
	EXPECT_EQ(client->ring()->nr_bad, std::size(bad));
}

TEST_F(HintRing, GarbageIndicesAreRefused)
{
	client->ring()->nr_entries = 1u << 30; /* not believed */
	client->ring()->head = 0x80000000;
	EXPECT_TRUE(arena->drain_hints(1000).empty());
	EXPECT_EQ(arena->nr_bad_hints, 1u);
	push({.kind = CXL_KV_HINT_WAKE}); /* and goes on from there */
	EXPECT_EQ(arena->drain_hints(1000).size(), 1u);
	client->ring()->tail = 12345;
	EXPECT_LE(arena->drain_hints(1000).size(), ArenaClient::ring_entries);
}

TEST(SharedWord, LeasesEndWhenTheyAreThreeThirdsOld)
{
	auto client = ArenaClient::create(small_geometry(4));
	ASSERT_TRUE(client) << client.error().what;
	auto made = (*client)->arena(1, 1);
	ASSERT_TRUE(made) << made.error().what;
	Arena &arena = **made;
	auto expired = [&](uint32_t block) {
		return ((*client)->word(block) & CXL_KV_WORD_EXPIRED_MASK) >>
		       CXL_KV_WORD_EXPIRED_SHIFT;
	};

	(*client)->lease(1);
	(*client)->lease(1);
	(*client)->lease(2);
	for (int i = 0; i < 3; i++)
		EXPECT_EQ(arena.age_leases(), 0u);
	(*client)->word(2) &= ~CXL_KV_WORD_AGE_MASK; /* as another lease does */
	EXPECT_EQ(arena.age_leases(), 2u);
	EXPECT_FALSE(arena.leased(1));
	EXPECT_EQ(expired(1), 2u);
	EXPECT_TRUE(arena.leased(2));
	EXPECT_EQ(expired(2), 0u);
	/* More than it can count: the newest are what matters. */
	(*client)->word(1) |= CXL_KV_WORD_LEASES_MASK | CXL_KV_WORD_AGE_MASK;
	EXPECT_EQ(arena.age_leases(), CXL_KV_WORD_LEASES_MAX);
	EXPECT_EQ(expired(1), CXL_KV_WORD_EXPIRED_MAX);
	EXPECT_FALSE(arena.leased(1));
}

TEST(SharedWord, LeaseCountSurvivesEveryChange)
{
	auto client = ArenaClient::create(small_geometry(4));
	ASSERT_TRUE(client) << client.error().what;
	auto made = (*client)->arena(1, 1);
	ASSERT_TRUE(made) << made.error().what;
	Arena &arena = **made;

	(*client)->lease(2);
	(*client)->word(2) |= CXL_KV_LOST; /* the client scribbles */
	arena.set_where(2, Where::Warm);
	arena.publish(2, CXL_KV_RESIDENT, true);
	EXPECT_EQ((*client)->word(2) & 0xffffffff,
		  (CXL_KV_WORD_LEASES_ONE | CXL_KV_RESIDENT | CXL_KV_WORD_CLEAN |
		   CXL_KV_TIER_WARM << CXL_KV_WORD_TIER_SHIFT));
	EXPECT_FALSE(arena.publish_unleased(2, CXL_KV_PUNCHING));
	EXPECT_EQ((*client)->state(2), CXL_KV_RESIDENT);
	(*client)->unlease(2);
	EXPECT_TRUE(arena.publish_unleased(2, CXL_KV_PUNCHING));
	EXPECT_EQ((*client)->state(2), CXL_KV_PUNCHING);
	EXPECT_EQ(arena.bytes.warm, 65536u);
	arena.set_where(2, Where::Cold);
	EXPECT_EQ(arena.bytes.warm, 0u);
	EXPECT_EQ(arena.bytes.cold, 65536u);
	EXPECT_TRUE(arena.try_busy(2));
	EXPECT_FALSE(arena.try_busy(2));
	EXPECT_EQ(arena.where(2), Where::Cold);
	arena.clear_busy(2);
	EXPECT_TRUE(arena.try_busy(2));
}

} // namespace
