/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Hints through the module: what is valid, the ring and its abuse, the state that a new manager
 * reads. */
#include "vm/kmod/device.h"

#include <chrono>
#include <vector>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

[[maybe_unused]] auto *const environment = testing::AddGlobalTestEnvironment(new ModuleLoaded);

constexpr uint32_t ring_entries = 64;
constexpr size_t ring_bytes = CXL_KV_RING_ENTRIES_OFFSET + 4096; /* 2 KiB of entries, in pages */

cxl_kv_hint score_hint(uint32_t slot, uint32_t head, uint32_t block, uint16_t mass)
{
	return {.kind = CXL_KV_HINT_SCORE,
		.priority = 0,
		.score = mass,
		.slot = slot,
		.head = head,
		.block = block,
		.nr_blocks = 1,
		.position = 0,
		.lifetime_ms = 0,
		.reserved = 0};
}

cxl_kv_hint session_hint(cxl_kv_hint_kind kind, uint32_t slot, uint32_t position = 0)
{
	cxl_kv_hint hint{};

	hint.kind = static_cast<__u8>(kind);
	hint.slot = slot;
	hint.position = position;
	return hint;
}

cxl_kv_hint pin_hint(uint32_t head, uint8_t priority, uint32_t lifetime_ms)
{
	cxl_kv_hint hint = score_hint(0, head, 0, 0);

	hint.kind = CXL_KV_HINT_PIN;
	hint.priority = priority;
	hint.lifetime_ms = lifetime_ms;
	return hint;
}

class Hints : public testing::Test {
protected:
	void SetUp() override
	{
		ASSERT_EQ(parts.register_with_ring(client, ring_entries, &arena, &ring_offset), 0);
		ASSERT_EQ(attach(manager), 0);
		dir = "/sys/class/cxl_kv/arena" + std::to_string(arena);
	}
	/* errno, and how many were taken. */
	std::pair<int, uint32_t> send(const std::vector<cxl_kv_hint> &hints)
	{
		cxl_kv_hints arg{sizeof(arg),
				 0,
				 arena,
				 static_cast<uint32_t>(hints.size()),
				 reinterpret_cast<uintptr_t>(hints.data()),
				 0,
				 0};
		int error = call(client, CXL_KV_IOC_HINT, &arg);

		return {error, arg.nr_taken};
	}
	std::vector<cxl_kv_hint> read(size_t room = CXL_KV_MAX_HINTS)
	{
		std::vector<cxl_kv_hint> hints(room);

		counters = {};
		counters.size = sizeof(counters);
		counters.arena = arena;
		counters.nr = static_cast<uint32_t>(room);
		counters.hints = reinterpret_cast<uintptr_t>(hints.data());
		EXPECT_EQ(call(manager, CXL_KV_IOC_HINTS_READ, &counters), 0);
		hints.resize(counters.nr);
		return hints;
	}
	std::vector<cxl_kv_head> heads(uint32_t first, uint32_t room)
	{
		std::vector<cxl_kv_head> out(room);
		cxl_kv_state_read arg{sizeof(arg),
				      0,
				      arena,
				      first,
				      room,
				      0,
				      reinterpret_cast<uintptr_t>(out.data())};

		EXPECT_EQ(call(manager, CXL_KV_IOC_HEADS_READ, &arg), 0);
		out.resize(arg.nr);
		return out;
	}
	std::vector<cxl_kv_slot> slots()
	{
		std::vector<cxl_kv_slot> out(8);
		cxl_kv_state_read arg{
			sizeof(arg), 0, arena, 0, 8, 0, reinterpret_cast<uintptr_t>(out.data())};

		EXPECT_EQ(call(manager, CXL_KV_IOC_SLOTS_READ, &arg), 0);
		out.resize(arg.nr);
		return out;
	}
	void *map_ring(size_t bytes = ring_bytes, int flags = MAP_SHARED, uint64_t shift = 0)
	{
		return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, client.get(),
			    static_cast<off_t>(ring_offset + shift));
	}

	ArenaParts parts;
	Fd client = open_device(), manager = open_device();
	uint32_t arena = 0;
	uint64_t ring_offset = 0;
	std::string dir;
	cxl_kv_hints_read counters{};
};

/* A producer, well-behaved or not. */
struct Producer {
	explicit Producer(void *at)
	    : map(at, ring_bytes), ring(reinterpret_cast<cxl_kv_ring *>(map.data())),
	      entries(reinterpret_cast<cxl_kv_hint *>(map.data() + CXL_KV_RING_ENTRIES_OFFSET))
	{
	}
	void put(const cxl_kv_hint &hint)
	{
		entries[ring->head % ring_entries] = hint;
		__atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
	}

	Mapping map;
	cxl_kv_ring *ring;
	cxl_kv_hint *entries;
};

TEST_F(Hints, OfEveryKindReachTheManager)
{
	cxl_kv_hint seal = score_hint(1, 3, 4, 0), drop = score_hint(1, 3, 0, 0);
	seal.kind = CXL_KV_HINT_SEAL;
	drop.kind = CXL_KV_HINT_DROP;
	drop.nr_blocks = 16;
	const std::vector<cxl_kv_hint> sent = {
		score_hint(0, 1, 2, 1000),
		session_hint(CXL_KV_HINT_POSITION, 1, 256),
		pin_hint(2, 100, 0),
		seal,
		session_hint(CXL_KV_HINT_PHASE, 1, 1),
		session_hint(CXL_KV_HINT_PARK, 0),
		session_hint(CXL_KV_HINT_WAKE, 0),
		drop,
	};

	EXPECT_EQ(send(sent), std::make_pair(0, 8u));
	std::vector<cxl_kv_hint> got = read();
	ASSERT_EQ(got.size(), sent.size());
	for (size_t i = 0; i < sent.size(); i++)
		EXPECT_EQ(memcmp(&got[i], &sent[i], sizeof(sent[i])), 0) << i;
	EXPECT_TRUE(read().empty());
}

TEST_F(Hints, ThatAreNotValidAreRefused)
{
	auto changed = [](cxl_kv_hint hint, const std::function<void(cxl_kv_hint &)> &change) {
		change(hint);
		return hint;
	};
	const cxl_kv_hint good = score_hint(0, 0, 0, 1), park = session_hint(CXL_KV_HINT_PARK, 0);
	const std::vector<cxl_kv_hint> bad = {
		changed(good, [](auto &h) { h.kind = 0; }),
		changed(good, [](auto &h) { h.kind = 9; }),
		changed(good, [](auto &h) { h.kind = 255; }),
		changed(good, [](auto &h) { h.slot = 2; }),
		changed(good, [](auto &h) { h.head = 4; }),
		changed(good, [](auto &h) { h.head = ~0u; }),
		changed(good, [](auto &h) { h.block = 16; }),
		changed(good, [](auto &h) { h.nr_blocks = 0; }),
		changed(good, [](auto &h) { h.nr_blocks = 17; }),
		changed(good, [](auto &h) { h.block = 15, h.nr_blocks = 2; }),
		changed(good,
			[](auto &h) { h.block = 1, h.nr_blocks = ~0u; }), /* wraps around to 0 */
		changed(good, [](auto &h) { h.priority = 1; }),
		changed(good, [](auto &h) { h.lifetime_ms = 1; }),
		changed(good, [](auto &h) { h.position = 1; }),
		changed(good, [](auto &h) { h.reserved = 1; }),
		changed(park, [](auto &h) { h.nr_blocks = 1; }),
		changed(park, [](auto &h) { h.score = 1; }),
		session_hint(CXL_KV_HINT_PARK, 2),
		session_hint(CXL_KV_HINT_PHASE, 0, 2),
		session_hint(CXL_KV_HINT_POSITION, 0, 257),
		pin_hint(0, 101, 0),
	};

	for (size_t i = 0; i < bad.size(); i++)
		EXPECT_EQ(send({good, bad[i], good}), std::make_pair(EINVAL, 1u)) << i;
	EXPECT_EQ(read().size(), bad.size());
}

TEST_F(Hints, InABatchThatIsTooLongOrAbsentAreRefused)
{
	cxl_kv_hints arg{sizeof(arg), 0, arena, CXL_KV_MAX_HINTS + 1, 0, 0, 0};

	EXPECT_EQ(call(client, CXL_KV_IOC_HINT, &arg), EINVAL);
	arg.nr = 1;
	arg.hints = 8;
	EXPECT_EQ(call(client, CXL_KV_IOC_HINT, &arg), EFAULT);
}

TEST_F(Hints, ThatTheManagerDoesNotReadAreCountedAndStillApplied)
{
	std::vector<cxl_kv_hint> many(1500, session_hint(CXL_KV_HINT_POSITION, 0, 1));
	many.back().position = 99;

	EXPECT_EQ(send(many), std::make_pair(0, 1500u));
	EXPECT_EQ(read().size(), 1024u);
	EXPECT_EQ(counters.nr_taken, 1500u);
	EXPECT_EQ(counters.nr_lost, 476u);
	EXPECT_EQ(slots()[0].position, 99u);
	EXPECT_EQ(read_file(dir + "/hints/lost"), "476");
}

TEST_F(Hints, ThatCouldNotBeWrittenToTheManagerAreCounted)
{
	cxl_kv_hints_read arg{};

	EXPECT_EQ(send(std::vector<cxl_kv_hint>(5, session_hint(CXL_KV_HINT_WAKE, 0, 0))),
		  std::make_pair(0, 5u));
	arg.size = sizeof(arg);
	arg.arena = arena;
	arg.nr = 5;
	arg.hints = 8;
	EXPECT_EQ(call(manager, CXL_KV_IOC_HINTS_READ, &arg), EFAULT);
	EXPECT_EQ(read().size(), 0u);
	EXPECT_EQ(counters.nr_lost, 5u);
}

/* What a hint costs, as ratios within this guest; nothing is asserted. */
TEST_F(Hints, CostByBatchAndByCall)
{
	const std::vector<cxl_kv_hint> batch(256, session_hint(CXL_KV_HINT_POSITION, 0, 1)),
		one(1, batch[0]);
	auto time_ns = [](const std::function<void()> &work) {
		auto start = std::chrono::steady_clock::now();
		for (int i = 0; i < 20; i++)
			work();
		return static_cast<double>((std::chrono::steady_clock::now() - start).count()) / 20;
	};
	double by_call = time_ns([&] {
		for (int i = 0; i < 256; i++)
			send(one);
	});
	double by_batch = time_ns([&] { send(batch); });

	printf("# 256 hints: by call %.0f us, in a batch %.0f us, 1/%.1f\n", by_call / 1000,
	       by_batch / 1000, by_call / by_batch);
}

TEST_F(Hints, LeaveStateForTheNextManager)
{
	Fd next = open_device();

	send({score_hint(0, 1, 0, CXL_KV_SCORE_ONE), score_hint(0, 1, 1, CXL_KV_SCORE_ONE),
	      pin_hint(2, 80, 0), session_hint(CXL_KV_HINT_POSITION, 1, 77),
	      session_hint(CXL_KV_HINT_PHASE, 1, 1), session_hint(CXL_KV_HINT_PARK, 1)});
	manager = Fd();
	ASSERT_EQ(attach(next), 0);
	manager = std::move(next);

	std::vector<cxl_kv_head> head = heads(0, 100);
	ASSERT_EQ(head.size(), 4u);
	EXPECT_NEAR(head[1].score, 0.36 * CXL_KV_SCORE_ONE, 2); /* 1 - 0.8 * 0.8 */
	EXPECT_EQ(head[1].nr_hints, 2u);
	EXPECT_EQ(head[1].priority, CXL_KV_DEFAULT_PRIORITY);
	EXPECT_EQ(head[2].priority, 80);
	EXPECT_EQ(heads(3, 100).size(), 1u);
	EXPECT_EQ(heads(4, 100).size(), 0u);
	EXPECT_EQ(heads(~0u, 4).size(), 0u);

	std::vector<cxl_kv_slot> slot = slots();
	ASSERT_EQ(slot.size(), 2u);
	EXPECT_EQ(slot[0].phase, CXL_KV_PHASE_UNKNOWN);
	EXPECT_EQ(slot[1].position, 77u);
	EXPECT_EQ(slot[1].phase, CXL_KV_PHASE_DECODE);
	EXPECT_EQ(slot[1].parked, 1);

	EXPECT_EQ(read_file(dir + "/heads/2/priority"), "80");
	EXPECT_EQ(read_file(dir + "/heads/1/hints"), "2");
	EXPECT_EQ(read_file(dir + "/slots/1/position"), "77");
	EXPECT_EQ(read_file(dir + "/slots/1/phase"), "decode");
	EXPECT_EQ(read_file(dir + "/slots/0/phase"), "unknown");
}

TEST_F(Hints, PinsExpire)
{
	send({pin_hint(0, 90, 300)});
	cxl_kv_head head = heads(0, 1)[0];
	EXPECT_EQ(head.priority, 90);
	EXPECT_GT(head.pin_ms, 0u);
	EXPECT_LE(head.pin_ms, 300u);
	for (int i = 0; i < 1000 && heads(0, 1)[0].pin_ms; i++)
		usleep(10 * 1000);
	EXPECT_EQ(heads(0, 1)[0].priority, CXL_KV_DEFAULT_PRIORITY);
}

/* The longest lifetimes are as long as they say, 25 days and 49, and not for ever. */
TEST_F(Hints, LongPinsExpireToo)
{
	for (uint32_t lifetime : {0x7fffffffu, 0x80000000u, 0xfffffff0u}) {
		send({pin_hint(0, 90, lifetime)});
		EXPECT_NEAR(heads(0, 1)[0].pin_ms, lifetime, 5000);
	}
}

TEST_F(Hints, GoThroughTheRingInOrder)
{
	Producer producer(map_ring());

	ASSERT_EQ(producer.ring->nr_entries, ring_entries);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < 40; i++)
			producer.put(session_hint(CXL_KV_HINT_POSITION, 0, round * 40 + i));
		std::vector<cxl_kv_hint> got = read();
		ASSERT_EQ(got.size(), 40u);
		for (uint32_t i = 0; i < 40; i++)
			EXPECT_EQ(got[i].position, round * 40 + i);
		EXPECT_EQ(producer.ring->tail, producer.ring->head);
	}
	EXPECT_EQ(counters.nr_bad, 0u);
}

TEST_F(Hints, InTheRingAreNotReadPastTheRoomOfTheReader)
{
	Producer producer(map_ring());

	for (uint32_t i = 0; i < 40; i++)
		producer.put(session_hint(CXL_KV_HINT_POSITION, 0, i));
	EXPECT_EQ(read(7).size(), 7u);
	EXPECT_EQ(read(0).size(), 0u);
	std::vector<cxl_kv_hint> rest = read();
	ASSERT_EQ(rest.size(), 33u);
	EXPECT_EQ(rest[0].position, 7u);
}

TEST_F(Hints, ThatAreGarbageInTheRingAreCountedOnly)
{
	Producer producer(map_ring());
	cxl_kv_hint garbage;

	memset(&garbage, 0xff, sizeof(garbage));
	producer.put(garbage);
	producer.put(score_hint(0, 0xffffffff, 0, 1));
	producer.put(session_hint(CXL_KV_HINT_POSITION, 1, 5));
	EXPECT_EQ(read().size(), 1u);
	EXPECT_EQ(counters.nr_bad, 2u);
	EXPECT_EQ(producer.ring->nr_bad, 2u);

	/* A header that lies: nothing is believed but the head, and that only within the ring's
	 * size. */
	producer.ring->nr_entries = ~0u;
	producer.ring->tail = 12345;
	producer.ring->head += 0x80000000;
	EXPECT_TRUE(read().empty());
	EXPECT_EQ(counters.nr_bad, 3u);
	producer.put(session_hint(CXL_KV_HINT_POSITION, 1, 6));
	EXPECT_EQ(read().size(), 1u) << "and it goes on from there";
	producer.ring->head -= 1;
	EXPECT_TRUE(read().empty());
	producer.ring->nr_dropped = 77;
	read();
	EXPECT_EQ(counters.nr_dropped, 77u);
}

TEST_F(Hints, RingIsMappedOnceAndWhole)
{
	EXPECT_EQ(map_ring(ring_bytes - 4096), MAP_FAILED);
	EXPECT_EQ(map_ring(ring_bytes + 4096), MAP_FAILED);
	EXPECT_EQ(map_ring(ring_bytes, MAP_PRIVATE), MAP_FAILED);
	EXPECT_EQ(map_ring(ring_bytes, MAP_SHARED, 4096), MAP_FAILED);
	EXPECT_EQ(errno, EINVAL);
	{
		Producer producer(map_ring());

		ASSERT_NE(producer.map.data(), MAP_FAILED);
		EXPECT_EQ(map_ring(), MAP_FAILED);
		EXPECT_EQ(errno, EBUSY);
		EXPECT_EQ(munmap(producer.map.data(), 4096), -1) << "half a ring";
	}
	Producer again(map_ring());
	EXPECT_NE(again.map.data(), MAP_FAILED);
}

TEST_F(Hints, RingIsNotForOthers)
{
	Fd other = open_device();

	EXPECT_EQ(mmap(nullptr, ring_bytes, PROT_READ, MAP_SHARED, other.get(),
		       static_cast<off_t>(ring_offset)),
		  MAP_FAILED);
	EXPECT_EQ(errno, ENOENT);
	EXPECT_EQ(in_child([&] { return map_ring() == MAP_FAILED ? errno : 0; }), EPERM);
}

TEST_F(Hints, RingOutlivesItsArenaHarmlessly)
{
	Producer producer(map_ring());

	ASSERT_EQ(unregister(client, arena), 0);
	producer.put(session_hint(CXL_KV_HINT_POSITION, 0, 1));
	EXPECT_EQ(map_ring(), MAP_FAILED);
	EXPECT_EQ(errno, ENOENT);
	client.reset();
	producer.put(session_hint(CXL_KV_HINT_POSITION, 0, 2));
	EXPECT_EQ(unload_module(), EAGAIN) << "the mapping keeps the module";
}

TEST_F(Hints, RingSizesAreChecked)
{
	ArenaParts more;
	Fd device = open_device();
	uint32_t number = 0;
	uint64_t offset = 0;

	for (uint32_t entries : {1u, 32u, 65u, 100u, 1u << 17, ~0u})
		EXPECT_EQ(more.register_with_ring(device, entries, &number, &offset), EINVAL)
			<< entries;
	EXPECT_EQ(more.register_with_ring(device, CXL_KV_RING_MAX_ENTRIES, &number, &offset), 0);
	EXPECT_NE(offset, 0u);
}

} // namespace
