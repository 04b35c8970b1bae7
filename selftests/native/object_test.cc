/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keyed objects of a real daemon: stored, found, loaded, and what of them must
 * never happen. Tests named complaint_N are about that line of the list of what
 * went wrong in other systems.
 */
#include "cli/control_client.h"
#include "lib/object_client.h"

#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/mman.h>
#include <thread>

namespace cxlkv::test {

namespace {

class Objects : public testing::Test {
protected:
	void SetUp() override
	{
		if (geteuid() != 0)
			GTEST_SKIP() << "needs root for userfaultfd and locked memory";
		daemon_.start();
	}

	static int open_ns(const ObjectClient &client, const cxl_kv_identity &id,
			   std::string *field, uint32_t flags = 0, uint32_t bytes = kObjectBytes,
			   const char *ns_name = "test")
	{
		const cxl_kv_group groups[] = {{kGroup, bytes}};
		const cxl_kv_ns_options options = {sizeof(options), flags, ns_name, &id, groups, 1};
		cxl_kv_ns *ns = nullptr;
		char name[32] = "";
		int rc = cxl_kv_ns_open(client.kv, &options, name, sizeof(name), &ns);

		cxl_kv_ns_close(ns);
		*field = name;
		return rc;
	}

	static cxl_kv_ns_stats stats(const ObjectClient &client)
	{
		cxl_kv_ns_stats result{};

		result.size = sizeof(result);
		EXPECT_EQ(cxl_kv_ns_get_stats(client.ns, &result), 0);
		return result;
	}

	static bool eventually(const std::function<bool()> &condition)
	{
		using Clock = std::chrono::steady_clock;

		for (auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
			if (condition())
				return true;
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
		return false;
	}

	DaemonProcess daemon_{{"HOT__LIMIT=16MiB", "COLD__SIZE=128MiB", "OBJECTS__SIZE=32MiB"}};
};

TEST_F(Objects, are_found_and_loaded_by_another_client)
{
	ObjectClient a(daemon_.socket()), b(daemon_.socket());
	std::vector<Bytes> bytes;

	EXPECT_EQ(b.lookup(key(1)).found, uint32_t{CXL_KV_MISS});
	EXPECT_EQ(a.store(keys(1, 20)), std::vector<int32_t>(20, 0));
	EXPECT_EQ(b.lookup(key(1)).found, uint32_t{CXL_KV_HIT});
	EXPECT_EQ(b.lookup(key(1)).tier, uint32_t{CXL_KV_TIER_HOT});
	EXPECT_EQ(b.lookup(key(1, kGroup + 1)).found, uint32_t{CXL_KV_MISS})
		<< "another group is another key";
	EXPECT_EQ(b.load(keys(1, 20), &bytes), std::vector<int32_t>(20, 0));
	for (size_t i = 0; i < bytes.size(); i++)
		EXPECT_EQ(bytes[i], bytes_of(key(1 + i)));
	EXPECT_GT(b.lookup(key(1)).estimated_ns, 0u);
	EXPECT_EQ(b.load_one(key(21)), -ENOENT);
	EXPECT_EQ(b.store_one(key(1)), -EEXIST);
	EXPECT_EQ(cxl_kv_lookup_prefix(b.ns, keys(1, 30).data(), 30), 20u);
}

TEST_F(Objects, more_than_memory_holds_come_back_from_the_spill_store)
{
	ObjectClient client(daemon_.socket());

	/* 25 MiB of chunks in 16 MiB of memory. */
	for (uint64_t i = 0; i < 200; i += 10)
		ASSERT_EQ(client.store(keys(i, 10)), std::vector<int32_t>(10, 0)) << daemon_.log();
	EXPECT_TRUE(eventually([&] {
		uint64_t nr_cold = 0;
		for (uint64_t i = 0; i < 200; i++)
			nr_cold += client.lookup(key(i)).tier == CXL_KV_TIER_COLD;
		return nr_cold >= 70;
	})) << "the tier that a look-up tells is not where the object is";
	for (uint64_t i = 0; i < 200; i++)
		ASSERT_EQ(client.load_one(key(i)), 0) << "object " << i << "\n" << daemon_.log();
}

TEST_F(Objects, the_pool_evicts_the_longest_unused)
{
	ObjectClient client(daemon_.socket());
	const auto first = keys(0, 1);
	uint64_t nr_lost = 0;
	std::vector<cxl_kv_object_event> events(1000);

	/* The pool has 512 chunks, for 256 objects. */
	for (uint64_t i = 0; i < 256; i += 8)
		ASSERT_EQ(client.store(keys(i, 8)), std::vector<int32_t>(8, 0));
	ASSERT_EQ(cxl_kv_touch(client.ns, first.data(), 1, nullptr), 0);
	EXPECT_EQ(client.store_one(key(1000)), 0);
	EXPECT_EQ(client.lookup(key(0)).found, uint32_t{CXL_KV_HIT});
	EXPECT_EQ(client.lookup(key(1)).found, uint32_t{CXL_KV_MISS});
	ASSERT_EQ(cxl_kv_events(client.ns, events.data(), events.size(), &nr_lost), 258);
	EXPECT_EQ(nr_lost, 0u);
	EXPECT_EQ(events[0].kind, uint32_t{CXL_KV_OBJECT_STORED});
	EXPECT_EQ(events[256].kind, uint32_t{CXL_KV_OBJECT_REMOVED});
	EXPECT_EQ(memcmp(events[256].key.bytes, key(1).bytes, CXL_KV_KEY_BYTES), 0);
}

/* What the pool counts on is more than the store takes, which keeps room for its upkeep. */
TEST_F(Objects, make_way_for_others_when_no_tier_has_room)
{
	DaemonProcess daemon({"HOT__LIMIT=8MiB", "COLD__SIZE=40MiB"});
	daemon.start();
	ObjectClient client(daemon.socket());

	for (uint64_t first = 0; first < 400; first += 20)
		ASSERT_EQ(client.store(keys(first, 20)), std::vector<int32_t>(20, 0)) << first;
	EXPECT_EQ(client.load_one(key(399)), 0);
	EXPECT_GT(stats(client).nr_evicted, 0u);

	const cxl_kv_geometry geometry = {1, 1, 1, 64, 2, 256, 256 * 64, 65536};
	const cxl_kv_range half_of_hot = {0, 0, 0, 64};
	cxl_kv_arena *arena = nullptr;
	ASSERT_EQ(cxl_kv_arena_create(client.kv, &geometry, nullptr, &arena), 0);
	ASSERT_EQ(cxl_kv_session_open(arena, 0, nullptr), 0);
	EXPECT_EQ(cxl_kv_make(arena, &half_of_hot, 1, 20000), 0);
	EXPECT_EQ(client.store_one(key(400)), 0);
	cxl_kv_arena_destroy(arena);
}

TEST_F(Objects, registered_buffers_are_copied_in_parts)
{
	ObjectClient client(daemon_.socket());
	const size_t room = 2 * kObjectBytes;
	int fd = memfd_create("buffer", MFD_CLOEXEC);
	ASSERT_EQ(ftruncate(fd, static_cast<off_t>(room)), 0);
	auto *at = static_cast<uint8_t *>(
		mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	cxl_kv_buffer *buffer = nullptr;
	const Bytes bytes = bytes_of(key(7));
	constexpr uint32_t part = 30'001;
	uint64_t id = 0;

	ASSERT_EQ(cxl_kv_register_buffer(client.kv, fd, 0, at, room, &buffer), 0);
	memcpy(at, bytes.data(), bytes.size());
	/* Two transfers of one key, the first in two pieces. */
	iovec pieces[] = {{at, 10}, {at + 10, part - 10}, {at + part, kObjectBytes - part}};
	ASSERT_EQ(client.submit(CXL_KV_STORE,
				{{key(7), 0, &pieces[0], 2}, {key(7), part, &pieces[2], 1}}, 0,
				&id),
		  0);
	EXPECT_EQ(client.wait(CXL_KV_STORE, id), 0);
	iovec tail = {at + kObjectBytes, kObjectBytes - part};
	ASSERT_EQ(client.submit(CXL_KV_LOAD, {{key(7), part, &tail, 1}}, 0, &id), 0);
	EXPECT_EQ(client.wait(CXL_KV_LOAD, id), 0);
	EXPECT_EQ(memcmp(at + kObjectBytes, bytes.data() + part, kObjectBytes - part), 0);
	iovec beyond = {at, kObjectBytes};
	ASSERT_EQ(client.submit(CXL_KV_LOAD, {{key(7), 1, &beyond, 1}}, 0, &id), 0);
	EXPECT_EQ(client.wait(CXL_KV_LOAD, id), -EINVAL);
	/* Half an object is not found, and not left. */
	ASSERT_EQ(client.submit(CXL_KV_STORE, {{key(8), 0, &pieces[1], 1}}, 0, &id), 0);
	EXPECT_EQ(client.wait(CXL_KV_STORE, id), -ENODATA);
	EXPECT_EQ(client.lookup(key(8)).found, uint32_t{CXL_KV_MISS});
	EXPECT_EQ(cxl_kv_unregister_buffer(buffer), 0);
	munmap(at, room);
	close(fd);
}

TEST_F(Objects, complaint_10_another_revision_or_rope_factor_is_refused_by_name)
{
	ObjectClient client(daemon_.socket());
	std::string field;
	ASSERT_EQ(client.store_one(key(1)), 0);

	auto other = identity();
	strcpy(other.revision, "r2");
	EXPECT_EQ(open_ns(client, other, &field), -ESTALE);
	EXPECT_EQ(field, "revision");
	other = identity();
	other.rope_theta = 500000;
	EXPECT_EQ(open_ns(client, other, &field), -ESTALE);
	EXPECT_EQ(field, "rope_theta");
	EXPECT_EQ(open_ns(client, other, &field, CXL_KV_NS_REPLACE), -EBUSY) << "it is open";
	EXPECT_EQ(open_ns(client, identity(), &field, 0, kObjectBytes + 1), -ESTALE);
	EXPECT_EQ(field, "group 3");
	EXPECT_EQ(open_ns(client, identity(), &field), 0);
	cxl_kv_ns_close(std::exchange(client.ns, nullptr));
	EXPECT_EQ(open_ns(client, other, &field, CXL_KV_NS_REPLACE), 0);
	ObjectClient replaced(daemon_.socket(), other);
	EXPECT_EQ(replaced.lookup(key(1)).found, uint32_t{CXL_KV_MISS});
}

/* The manager hangs up on a line that is not UTF-8, and all calls of the process would wait. */
TEST_F(Objects, texts_that_are_not_utf8_are_refused_and_cost_nothing_else)
{
	ObjectClient client(daemon_.socket());
	std::string field;
	ASSERT_EQ(client.store_one(key(1)), 0);

	auto bad = identity();
	strcpy(bad.layout, "caf\xe9");
	EXPECT_EQ(open_ns(client, bad, &field), -EINVAL);
	EXPECT_EQ(open_ns(client, identity(), &field, 0, kObjectBytes, "caf\xe9"), -EINVAL);
	EXPECT_EQ(open_ns(client, identity(), &field, 0, kObjectBytes, "caf\xc3\xa9"), 0);
	EXPECT_EQ(client.load_one(key(1)), 0);
	EXPECT_EQ(cxl_kv_connected(client.kv), 1);
}

TEST_F(Objects, complaint_11_another_rank_of_the_same_size_is_refused)
{
	ObjectClient client(daemon_.socket());
	auto other = identity();
	std::string field;

	other.tp_rank = 1;
	EXPECT_EQ(open_ns(client, other, &field), -ESTALE);
	EXPECT_EQ(field, "tp_rank");
}

TEST_F(Objects, tenants_with_different_salts_never_meet)
{
	auto other = identity();
	other.tenant_salt[31] = 1;
	ObjectClient a(daemon_.socket()), b(daemon_.socket(), other);

	ASSERT_EQ(a.store_one(key(1)), 0);
	EXPECT_EQ(b.lookup(key(1)).found, uint32_t{CXL_KV_MISS});
	EXPECT_EQ(b.load_one(key(1)), -ENOENT);
	EXPECT_EQ(b.store_one(key(1)), 0) << "each has its own";
	ASSERT_EQ(cxl_kv_ns_reset(a.ns), 1);
	EXPECT_EQ(b.load_one(key(1)), 0);
}

TEST_F(Objects, namespaces_that_nobody_uses_make_room)
{
	{
		ObjectClient kept(daemon_.socket());
		ASSERT_EQ(kept.store_one(key(1)), 0);
	}
	for (int i = 0; i < 300; i++)
		ASSERT_NO_THROW(
			ObjectClient(daemon_.socket(), identity(), "job " + std::to_string(i)))
			<< i;
	ObjectClient again(daemon_.socket());
	EXPECT_EQ(again.load_one(key(1)), 0) << "its namespace has an object";
}

TEST_F(Objects, a_tenant_over_its_quota_evicts_its_own)
{
	auto other = identity();
	other.tenant_salt[0] = 1;
	ObjectClient a(daemon_.socket()), b(daemon_.socket(), other);

	ASSERT_EQ(b.store_one(key(1)), 0);
	ASSERT_EQ(cxl_kv_set_quota(a.ns, 4 * 128 << 10), 0); /* four objects of two chunks */
	for (uint64_t i = 0; i < 10; i++) {
		ASSERT_EQ(a.store_one(key(i)), 0);
		ASSERT_LE(stats(a).tenant_bytes, stats(a).quota_bytes);
	}
	EXPECT_EQ(stats(a).nr_objects, 4u);
	EXPECT_EQ(a.lookup(key(5)).found, uint32_t{CXL_KV_MISS});
	EXPECT_EQ(a.load_one(key(9)), 0);
	EXPECT_EQ(b.load_one(key(1)), 0);
}

TEST_F(Objects, who_leaves_follows_pins_priorities_and_touches)
{
	ObjectClient client(daemon_.socket());
	auto found = [&] {
		std::set<uint64_t> there;
		for (uint64_t i = 0; i < 8; i++)
			if (client.lookup(key(i)).found == CXL_KV_HIT)
				there.insert(i);
		return there;
	};
	const auto pinned = key(0), low = key(2), touched = key(1), absent = key(100);
	int32_t result = 1;

	ASSERT_EQ(cxl_kv_set_quota(client.ns, 4 * 128 << 10), 0);
	for (uint64_t i = 0; i < 4; i++)
		ASSERT_EQ(client.store_one(key(i)), 0);
	EXPECT_EQ(cxl_kv_pin_keys(client.ns, &pinned, 1, UINT32_MAX, &result), 0);
	EXPECT_EQ(result, 0);
	EXPECT_EQ(cxl_kv_set_priority(client.ns, &low, 1, 1, &result), 0);
	EXPECT_EQ(result, 0);
	EXPECT_EQ(cxl_kv_touch(client.ns, &touched, 1, &result), 0);
	EXPECT_EQ(result, 0);
	EXPECT_EQ(cxl_kv_set_priority(client.ns, &absent, 1, 1, &result), 0);
	EXPECT_EQ(result, -ENOENT);
	ASSERT_EQ(client.store_one(key(4)), 0);
	EXPECT_EQ(found(), (std::set<uint64_t>{0, 1, 3, 4})) << "the lowest priority";
	ASSERT_EQ(client.store_one(key(5)), 0);
	EXPECT_EQ(found(), (std::set<uint64_t>{0, 1, 4, 5})) << "then the longest unused";
	EXPECT_EQ(cxl_kv_delete(client.ns, &pinned, 1, &result), 0);
	EXPECT_EQ(result, -EBUSY);
	EXPECT_EQ(cxl_kv_pin_keys(client.ns, &pinned, 1, 0, &result), 0);
	EXPECT_EQ(result, 0);
	ASSERT_EQ(client.store_one(key(6)), 0);
	EXPECT_EQ(found(), (std::set<uint64_t>{1, 4, 5, 6})) << "no longer pinned";
}

TEST_F(Objects, what_the_clients_of_a_tenant_did_is_counted)
{
	setenv("CXL_KV_SOCKET", daemon_.socket().c_str(), 1);
	ObjectClient client(daemon_.socket());
	auto figure = [](const char *name) {
		nlohmann::json status;
		EXPECT_EQ(ask_daemon({{"op", "status"}}, status), 0);
		return number_at(status, (std::string("/tenants/0/objects/") + name).c_str());
	};

	ASSERT_EQ(client.store(keys(1, 3)), std::vector<int32_t>(3, 0));
	for (uint64_t i = 1; i < 5; i++)
		client.lookup(key(i));
	EXPECT_EQ(cxl_kv_lookup_prefix(client.ns, keys(1, 10).data(), 10), 3u);
	EXPECT_EQ(client.load_one(key(1)), 0);
	EXPECT_EQ(client.load_one(key(2)), 0);
	EXPECT_TRUE(eventually([&] { return figure("loaded") == 2; }));
	EXPECT_EQ(figure("stored"), 3u);
	EXPECT_EQ(figure("hits"), 6u);
	EXPECT_EQ(figure("misses"), 2u) << "of the prefix, the one that ended it";
}

TEST_F(Objects, complaint_13_a_load_waits_for_the_store_to_land)
{
	ObjectClient a(daemon_.socket()), b(daemon_.socket());
	const auto k = keys(1, 1);
	Bytes bytes = bytes_of(k[0]), got(kObjectBytes);
	iovec half[] = {{bytes.data(), 50'000}, {bytes.data() + 50'000, kObjectBytes - 50'000}},
	      into = {got.data(), got.size()};
	uint64_t load = 0, store = 0;
	int32_t result = 1;
	cxl_kv_completion none{};

	ASSERT_EQ(cxl_kv_reserve(a.ns, k.data(), 1, 60000, &result), 0);
	ASSERT_EQ(result, 0);
	EXPECT_EQ(b.lookup(k[0]).found, uint32_t{CXL_KV_PENDING});
	EXPECT_EQ(b.store_one(k[0]), -EEXIST);
	ASSERT_EQ(b.submit(CXL_KV_LOAD, {{k[0], 0, &into, 1}}, 60000, &load), 0);
	ASSERT_EQ(a.submit(CXL_KV_STORE, {{k[0], 0, &half[0], 1}}, 60000, &store, nullptr,
			   CXL_KV_JOB_NO_COMMIT),
		  0);
	EXPECT_EQ(a.wait(CXL_KV_STORE, store), 0);
	EXPECT_EQ(cxl_kv_commit(a.ns, k.data(), 1, &result), 0);
	EXPECT_EQ(result, -ENODATA) << "half is no object";
	EXPECT_EQ(b.lookup(k[0]).found, uint32_t{CXL_KV_PENDING});
	EXPECT_EQ(cxl_kv_poll(b.kv, CXL_KV_LOAD, &none, 1), 0) << "loaded before it was stored";
	ASSERT_EQ(a.submit(CXL_KV_STORE, {{k[0], 50'000, &half[1], 1}}, 60000, &store, nullptr,
			   CXL_KV_JOB_NO_COMMIT),
		  0);
	EXPECT_EQ(a.wait(CXL_KV_STORE, store), 0);
	EXPECT_EQ(cxl_kv_poll(b.kv, CXL_KV_LOAD, &none, 1), 0) << "loaded before it was committed";
	EXPECT_EQ(cxl_kv_commit(a.ns, k.data(), 1, &result), 0);
	EXPECT_EQ(result, 0);
	EXPECT_EQ(b.wait(CXL_KV_LOAD, load), 0);
	EXPECT_EQ(got, bytes);
	EXPECT_EQ(b.lookup(k[0]).found, uint32_t{CXL_KV_HIT});
}

/* The caller may write to its memory as soon as submit returns, and so does the next job to the
 * pool; what is in flight must not see it. */
TEST_F(Objects, complaint_14_staging_is_not_reused_while_a_copy_reads_it)
{
	ObjectClient client(daemon_.socket());
	std::map<uint64_t, uint64_t> jobs;
	uint64_t nr_full = 0;

	for (uint64_t i = 0; i < 150;) {
		Bytes bytes = bytes_of(key(i));
		iovec iov = {bytes.data(), bytes.size()};
		uint64_t id = 0;
		int rc = client.submit(CXL_KV_STORE, {{key(i), 0, &iov, 1}}, 60000, &id);
		std::fill(bytes.begin(), bytes.end(), 0xee);
		if (!rc)
			jobs[id] = i++;
		cxl_kv_completion done{};
		while (cxl_kv_poll(client.kv, CXL_KV_STORE, &done, 1) == 1) {
			EXPECT_EQ(done.error, 0);
			EXPECT_EQ(jobs.erase(done.id), 1u) << "each exactly once";
		}
		if (rc) {
			ASSERT_EQ(rc, -EAGAIN) << "it never blocks";
			nr_full++;
		}
	}
	EXPECT_EQ(cxl_kv_drain(client.kv, CXL_KV_STORE, 60000), 0);
	cxl_kv_completion rest[200];
	EXPECT_EQ(cxl_kv_poll(client.kv, CXL_KV_STORE, rest, 200), static_cast<int>(jobs.size()));
	for (uint64_t i = 0; i < 150; i++)
		ASSERT_EQ(client.load_one(key(i)), 0) << "object " << i;
}

TEST_F(Objects, complaint_15_what_is_free_again_adds_up)
{
	ObjectClient client(daemon_.socket());
	const uint64_t all = stats(client).pool_free_bytes;

	ASSERT_EQ(all, stats(client).pool_bytes);
	for (uint64_t round = 0; round < 3; round++) {
		std::vector<int32_t> results(120);
		const auto some = keys(0, 120);
		for (uint64_t i = 0; i < 120; i += 20) /* some of it goes to the store */
			ASSERT_EQ(client.store(keys(i, 20)), std::vector<int32_t>(20, 0));
		EXPECT_EQ(client.load_one(key(3)), 0);
		EXPECT_EQ(stats(client).tenant_bytes, 120u * 2 * (64 << 10));
		ASSERT_EQ(cxl_kv_delete(client.ns, some.data(), some.size(), results.data()), 0);
		EXPECT_EQ(results, std::vector<int32_t>(120, 0));
		EXPECT_TRUE(eventually([&] { return stats(client).pool_free_bytes == all; }));
		EXPECT_EQ(stats(client).tenant_bytes, 0u);
	}
}

TEST_F(Objects, complaint_17_a_pending_hit_has_a_deadline)
{
	ObjectClient a(daemon_.socket()), b(daemon_.socket());
	const auto k = keys(1, 1);

	ASSERT_EQ(cxl_kv_reserve(a.ns, k.data(), 1, 60000, nullptr), 0);
	EXPECT_EQ(b.load_one(k[0], 50), -ETIMEDOUT);
	ASSERT_EQ(cxl_kv_abort(a.ns, k.data(), 1, nullptr), 0);
	EXPECT_EQ(b.lookup(k[0]).found, uint32_t{CXL_KV_MISS});
	/* A reservation ends too: who waits for it hears that there is nothing. */
	ASSERT_EQ(cxl_kv_reserve(a.ns, k.data(), 1, 50, nullptr), 0);
	EXPECT_EQ(b.load_one(k[0], 60000), -ENOENT);
	EXPECT_EQ(b.lookup(k[0]).found, uint32_t{CXL_KV_MISS});
}

TEST_F(Objects, a_cancelled_job_leaves_no_half_written_object)
{
	ObjectClient a(daemon_.socket()), b(daemon_.socket());
	const auto k = keys(1, 2);
	Bytes bytes(kObjectBytes);
	iovec iov = {bytes.data(), bytes.size()};
	uint64_t id = 0;

	ASSERT_EQ(cxl_kv_reserve(a.ns, k.data(), 1, 60000, nullptr), 0);
	ASSERT_EQ(b.submit(CXL_KV_LOAD, {{k[0], 0, &iov, 1}}, 60000, &id), 0);
	EXPECT_EQ(cxl_kv_cancel(b.kv, CXL_KV_LOAD, id), 0);
	EXPECT_EQ(b.wait(CXL_KV_LOAD, id), -ECANCELED);
	EXPECT_EQ(cxl_kv_cancel(b.kv, CXL_KV_LOAD, id), -ENOENT) << "it ended";
	for (int i = 0; i < 200; i++) {
		ASSERT_EQ(b.submit(CXL_KV_STORE, {{k[1], 0, &iov, 1}}, 60000, &id), 0);
		cxl_kv_cancel(b.kv, CXL_KV_STORE, id);
		int32_t error = b.wait(CXL_KV_STORE, id);
		ASSERT_TRUE(error == 0 || error == -ECANCELED) << error;
		ASSERT_EQ(b.lookup(k[1]).found, uint32_t{error ? CXL_KV_MISS : CXL_KV_HIT});
		if (!error)
			cxl_kv_delete(b.ns, &k[1], 1, nullptr);
	}
}

TEST_F(Objects, complaint_19_a_full_pool_answers_and_locks_do_not_leak)
{
	ObjectClient client(daemon_.socket());
	const auto all = keys(0, 256);
	std::vector<int32_t> results(256);

	for (uint64_t i = 0; i < 256; i += 8)
		ASSERT_EQ(client.store(keys(i, 8)), std::vector<int32_t>(8, 0));
	ASSERT_EQ(cxl_kv_lock(client.ns, all.data(), 256, 1, 600000, results.data()), 0);
	EXPECT_EQ(results, std::vector<int32_t>(256, 0));
	EXPECT_EQ(client.store_one(key(1000)), -ENOSPC) << "an answer, not a spin";
	cxl_kv_delete(client.ns, all.data(), 1, results.data());
	EXPECT_EQ(results[0], -EBUSY);
	{
		/* Another client's lock falls with it, and takes nobody else's along. */
		ObjectClient other(daemon_.socket());
		ASSERT_EQ(cxl_kv_lock(other.ns, all.data(), 1, 1, 600000, nullptr), 0);
		for (int i = 0; i < 3; i++)
			ASSERT_EQ(cxl_kv_unlock(client.ns, all.data(), 1, 1, results.data()), 0);
		EXPECT_EQ(results[0], 0) << "again is no error";
		EXPECT_EQ(client.store_one(key(1000)), -ENOSPC) << "the other's lock holds";
	}
	EXPECT_TRUE(eventually([&] { return client.store_one(key(1000)) == 0; }));
	EXPECT_EQ(client.lookup(key(0)).found, uint32_t{CXL_KV_MISS});
	ASSERT_EQ(cxl_kv_lock(client.ns, &all[1], 1, 2, 1, nullptr), 0);
	ASSERT_EQ(cxl_kv_unlock(client.ns, &all[1], 1, 1, nullptr), 0);
	EXPECT_TRUE(eventually([&] {
		cxl_kv_delete(client.ns, &all[1], 1, results.data());
		return results[0] == 0;
	})) << "a lock has an end";
}

} // namespace

} // namespace cxlkv::test
