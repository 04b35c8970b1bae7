/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The books of keyed objects: chunks, locks, quotas, who leaves first; and the index. */
#include "core/object_table.h"

#include <gtest/gtest.h>
#include <random>
#include <set>

namespace cxlkv {

namespace {

constexpr uint32_t chunk = 4096;

ObjectKey key(uint64_t number, uint32_t group = 0)
{
	return {{number, 0, 0, 0}, group};
}

class Table : public testing::Test {
protected:
	Object *add(uint64_t number, uint32_t bytes = chunk, uint64_t tenant = 1)
	{
		Object *object = nullptr;
		if (table_.reserve(1, tenant, key(number), bytes, &object))
			return nullptr;
		table_.commit(*object);
		return object;
	}

	ObjectTable table_{8, chunk};
};

TEST_F(Table, gives_whole_chunks_and_takes_them_back)
{
	Object *a = add(1, 3 * chunk - 100), *b = add(2, 5 * chunk);

	ASSERT_TRUE(a && b);
	EXPECT_EQ(a->extents(7).size(), 1u);
	EXPECT_EQ(a->extents(7)[0].nr, 3u);
	EXPECT_EQ(table_.nr_free_chunks(), 0u);
	EXPECT_EQ(add(3), nullptr);
	table_.unlink(*a);
	EXPECT_EQ(table_.find(1, key(1)), nullptr);
	EXPECT_EQ(table_.nr_free_chunks(), 0u) << "its chunks are not free before they are dropped";
	table_.release(*a);
	EXPECT_EQ(table_.nr_free_chunks(), 3u);
	EXPECT_EQ(table_.usage(1).bytes, 5u * chunk);
	EXPECT_NE(add(3, 3 * chunk), nullptr);
}

TEST_F(Table, chunks_stay_whole_through_any_order_of_use)
{
	std::mt19937 random(1);
	std::vector<Object *> objects;

	for (uint64_t round = 0; round < 2000; round++) {
		if (random() % 2 && !objects.empty()) {
			size_t i = random() % objects.size();
			table_.release(*objects[i]);
			objects.erase(objects.begin() + static_cast<ptrdiff_t>(i));
		} else if (Object *object = add(round, 1 + random() % (3 * chunk))) {
			objects.push_back(object);
		}
		std::set<uint32_t> used;
		size_t nr = 0;
		for (const Object *object : objects)
			for (const Object::Chunk &c : object->chunks) {
				EXPECT_EQ(table_.owner(c.block), object);
				used.insert(c.block);
				nr++;
			}
		ASSERT_EQ(used.size(), nr) << "two objects in one chunk";
		ASSERT_EQ(table_.nr_free_chunks(), 8 - nr);
	}
}

TEST_F(Table, the_lowest_priority_then_the_longest_unused_leaves_first)
{
	Object *a = add(1), *b = add(2), *c = add(3);

	table_.touch(*a);
	EXPECT_EQ(table_.victim(0, 0), b);
	table_.set_priority(*c, 10);
	EXPECT_EQ(table_.victim(0, 0), c);
	c->nr_users = 1;
	EXPECT_EQ(table_.victim(0, 0), b);
	b->pinned_until_ns = 100;
	EXPECT_EQ(table_.victim(0, 50), a);
	EXPECT_EQ(table_.victim(0, 200), b);
	EXPECT_EQ(table_.victim(2, 200), nullptr) << "another tenant has nothing";
}

/* field.md 19: unpin goes to -1, look-up locks leak. */
TEST_F(Table, complaint_19_locks_neither_leak_nor_go_below_zero)
{
	Object *a = add(1);

	ObjectTable::unlock(*a, 1, 1);
	ObjectTable::lock(*a, 1, 1, 100);
	ObjectTable::unlock(*a, 1, 1);
	ObjectTable::unlock(*a, 1, 1);
	EXPECT_FALSE(a->held(0));
	ObjectTable::lock(*a, 1, 1, 100);
	ObjectTable::lock(*a, 1, 1, 100);
	ObjectTable::lock(*a, 2, 1, 100);
	ObjectTable::unlock(*a, 1, 1);
	EXPECT_TRUE(a->held(50)) << "the other client's stands";
	EXPECT_FALSE(a->held(100)) << "until its time is over";
	table_.forget_client(2);
	EXPECT_FALSE(a->held(50));
	EXPECT_TRUE(a->locks.empty());
}

TEST_F(Table, a_tenant_stays_within_its_quota)
{
	table_.set_quota(1, 2 * chunk);
	Object *a = add(1), *out = nullptr;
	ASSERT_TRUE(a && add(2));
	EXPECT_EQ(table_.reserve(1, 1, key(3), chunk, &out), EDQUOT);
	EXPECT_EQ(table_.reserve(1, 1, key(3), 3 * chunk, &out), EFBIG);
	EXPECT_NE(add(4, chunk, 2), nullptr) << "it is the tenant's own";
	table_.release(*a);
	EXPECT_NE(add(3), nullptr);
}

TEST_F(Table, recovers_only_what_fits_its_chunks)
{
	EXPECT_NE(table_.recover(1, 1, key(1), 2 * chunk, {{3, 0}, {6, 0}}), nullptr);
	EXPECT_EQ(table_.recover(1, 1, key(1), chunk, {{1, 0}}), nullptr) << "the key is there";
	EXPECT_EQ(table_.recover(1, 1, key(2), 2 * chunk, {{1, 0}, {6, 0}}), nullptr);
	EXPECT_EQ(table_.recover(1, 1, key(2), chunk, {{8, 0}}), nullptr);
	EXPECT_EQ(table_.recover(1, 1, key(2), chunk, {{1, 0}, {2, 0}}), nullptr);
	EXPECT_EQ(table_.nr_free_chunks(), 6u) << "what was refused is free again";
	EXPECT_EQ(add(5, 6 * chunk)->extents(0).size(), 3u);
}

/* A reader's view, as libcxl_kv has it, without its retries: nobody writes meanwhile. */
cxl_kv_index_state look_up(const std::vector<std::byte> &memory, uint64_t nr_slots,
			   const ObjectKey &wanted)
{
	auto *slots = reinterpret_cast<const cxl_kv_index_slot *>(memory.data() +
								  CXL_KV_INDEX_SLOTS_OFFSET);
	for (uint64_t at = wanted.hash() & (nr_slots - 1);; at = (at + 1) & (nr_slots - 1)) {
		const cxl_kv_index_slot &slot = slots[at];
		auto state = static_cast<cxl_kv_index_state>(
			(slot.word & CXL_KV_INDEX_STATE_MASK) >> CXL_KV_INDEX_STATE_SHIFT);
		if (state && std::equal(wanted.key.begin(), wanted.key.end(), slot.key) &&
		    slot.group == wanted.group)
			return state;
		if (!(slot.word & CXL_KV_INDEX_PASSED_MASK))
			return CXL_KV_INDEX_FREE;
	}
}

TEST(Index, finds_what_is_there_and_leaves_no_marks)
{
	constexpr uint64_t nr_slots = 1024;
	std::vector<std::byte> memory(cxl_kv_index_bytes(nr_slots));
	ObjectIndex index(memory.data(), nr_slots);
	std::map<uint64_t, uint32_t> there;
	std::mt19937 random(2);

	for (uint64_t round = 0; round < 20000; round++) {
		uint64_t number = random() % 1000;
		if (auto it = there.find(number); it != there.end()) {
			index.remove(it->second);
			there.erase(it);
		} else if (there.size() < nr_slots / 2) {
			auto slot = index.insert(key(number));
			ASSERT_TRUE(slot);
			there[number] = *slot;
			index.set_state(*slot, CXL_KV_INDEX_READY);
		}
		uint64_t asked = random() % 1000;
		ASSERT_EQ(look_up(memory, nr_slots, key(asked)),
			  there.count(asked) ? CXL_KV_INDEX_READY : CXL_KV_INDEX_FREE);
	}
	for (const auto &[number, slot] : there)
		index.remove(slot);
	auto *slots =
		reinterpret_cast<cxl_kv_index_slot *>(memory.data() + CXL_KV_INDEX_SLOTS_OFFSET);
	for (uint64_t at = 0; at < nr_slots; at++)
		ASSERT_FALSE(slots[at].word & ~CXL_KV_INDEX_SEQUENCE_MASK) << "slot " << at;
}

} // namespace

} // namespace cxlkv
