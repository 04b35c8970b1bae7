/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A client of keyed objects that means no good, by its own rings: the others are served. */
#include "lib/control_peer.h"
#include "lib/object_client.h"
#include "sys/object_space.h"

#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <thread>

namespace cxlkv::test {

namespace {

using nlohmann::json;

constexpr uint32_t kBufferBytes = 1 << 20;

class Hostile : public testing::Test {
protected:
	void SetUp() override
	{
		if (geteuid() != 0)
			GTEST_SKIP() << "needs root for userfaultfd and locked memory";
		daemon_.start();
		peer_ = std::make_unique<ControlPeer>(daemon_.socket());
		ASSERT_TRUE(peer_->ask(R"({"op":"hello"})").value("ok", false));
		ASSERT_TRUE(peer_->ask(R"({"op":"rings"})", rings_.files()).value("ok", false));
		Fd buffer(memfd_create("buffer", MFD_CLOEXEC));
		ASSERT_EQ(ftruncate(buffer.get(), kBufferBytes), 0);
		const json named = peer_->ask(
			fmt::format(R"({{"op":"buffer","buffer":1,"bytes":"{}"}})", kBufferBytes),
			{buffer.get()});
		ASSERT_TRUE(named.value("ok", false)) << named;
		space_ = open("one");
		ASSERT_NE(space_, 0u);
	}

	void TearDown() override
	{
		if (HasFailure())
			std::cout << "# " << daemon_.log();
	}

	/* Its number; 0 where it was refused. */
	uint32_t open(const char *model)
	{
		json in = {{"op", "namespace"},
			   {"name", "hostile"},
			   {"salt", std::string(64, '0')},
			   {"replace", true},
			   {"groups", {{kGroup, kObjectBytes}}},
			   {"identity", json::object()}};
		for (const char *field : SpaceSpec::identity_fields)
			in["identity"][field] = model;
		return peer_->ask(in.dump()).value("namespace", 0u);
	}

	[[nodiscard]] cxl_kv_item item(uint8_t op, uint64_t number, uint32_t id) const
	{
		cxl_kv_item result{};
		const cxl_kv_key k = key(number);

		memcpy(result.key, k.bytes, sizeof(result.key));
		result.group = k.group;
		result.bytes = kObjectBytes;
		result.buffer = 1;
		result.ns = space_;
		result.id = id;
		result.op = op;
		return result;
	}

	void expect_served()
	{
		ObjectClient other(daemon_.socket());

		EXPECT_EQ(other.store_one(key(1)), 0);
		EXPECT_EQ(other.load_one(key(1)), 0);
	}

	DaemonProcess daemon_{{"HOT__LIMIT=16MiB", "COLD__SIZE=64MiB", "OBJECTS__SIZE=32MiB"}};
	PeerRings rings_;
	std::unique_ptr<ControlPeer> peer_;
	uint32_t space_ = 0;
};

/* The daemon signals a file whose counter the client filled, and which blocks who writes to it. */
TEST_F(Hostile, an_event_that_is_full_and_blocks_stops_nobody)
{
	for (const Fd &event : rings_.events) {
		ASSERT_EQ(fcntl(event.get(), F_SETFL, O_RDWR), 0);
		ASSERT_EQ(eventfd_write(event.get(), UINT64_MAX - 1), 0);
	}
	rings_.put(CXL_KV_LANE_CALL, {item(CXL_KV_ITEM_TOUCH, 5, 1)});
	rings_.put(CXL_KV_LANE_LOAD, {item(CXL_KV_ITEM_LOAD, 5, 1)});
	while (!rings_.nr_results(CXL_KV_LANE_CALL) || !rings_.nr_results(CXL_KV_LANE_LOAD))
		std::this_thread::yield();
	expect_served();
}

/* Items that are behind others find their namespace gone when it is their turn. */
TEST_F(Hostile, a_namespace_replaced_under_items_that_wait_is_not_there)
{
	auto store = item(CXL_KV_ITEM_STORE, 5, 0);
	store.flags = CXL_KV_ITEM_FIRST | CXL_KV_ITEM_LAST;
	rings_.put(CXL_KV_LANE_STORE, {store});
	while (!rings_.nr_results(CXL_KV_LANE_STORE))
		std::this_thread::yield();
	ASSERT_EQ(rings_.lanes[CXL_KV_LANE_STORE].results[0].result, 0);
	std::vector<cxl_kv_item> loads, stores;
	for (uint32_t i = 0; i < CXL_KV_LANE_ENTRIES; i++) {
		loads.push_back(item(CXL_KV_ITEM_LOAD, 5, i));
		loads.back().priority = 100;
	}
	for (uint32_t i = 1; i <= 100; i++) {
		stores.push_back(item(CXL_KV_ITEM_STORE, 100 + i, i));
		stores.back().flags = store.flags;
	}
	rings_.put(CXL_KV_LANE_LOAD, loads);
	rings_.put(CXL_KV_LANE_STORE, stores);
	EXPECT_TRUE(peer_->ask(fmt::format(R"({{"op":"namespace_close","namespace":{}}})", space_))
			    .value("ok", false));
	EXPECT_NE(open("another"), 0u) << "replaced";
	while (rings_.nr_results(CXL_KV_LANE_STORE) < 101 && peer_->skip_answers())
		std::this_thread::yield();
	expect_served();
}

} // namespace

} // namespace cxlkv::test
