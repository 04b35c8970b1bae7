/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keyed objects when the daemon ends, in order or not, and when the spill store is damaged. */
#include "lib/object_client.h"

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

namespace cxlkv::test {

namespace {

constexpr uint64_t kNr = 100;

class Restart : public testing::Test {
protected:
	void SetUp() override
	{
		if (geteuid() != 0)
			GTEST_SKIP() << "needs root for userfaultfd and locked memory";
		daemon_.start();
		client_ = std::make_unique<ObjectClient>(daemon_.socket());
		for (uint64_t i = 0; i < kNr; i += 10)
			ASSERT_EQ(client_->store(keys(i, 10)), std::vector<int32_t>(10, 0));
	}

	void TearDown() override
	{
		if (HasFailure())
			std::cout << "# " << daemon_.log();
	}

	static bool eventually(const std::function<bool()> &condition)
	{
		using Clock = std::chrono::steady_clock;

		for (auto end = Clock::now() + std::chrono::seconds(30); Clock::now() < end;) {
			if (condition())
				return true;
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		}
		return false;
	}

	void restart()
	{
		daemon_.terminate();
		daemon_.start();
	}

	/* The new daemon has opened its store and serves the client: an index alone may still be
	 * the old one's, and it listens before it opens the store. */
	[[nodiscard]] bool back()
	{
		return stats().pool_bytes && eventually([&] {
			       return client_->lookup(key(0)).found != uint32_t{CXL_KV_RETRY};
		       });
	}

	cxl_kv_ns_stats stats()
	{
		cxl_kv_ns_stats result{};

		result.size = sizeof(result);
		EXPECT_EQ(cxl_kv_ns_get_stats(client_->ns, &result), 0);
		return result;
	}

	[[nodiscard]] std::string spill_file() const { return daemon_.folder() + "/spill"; }

	/* Where the first chunk of the object lies in the spill file. */
	[[nodiscard]] size_t find_in_store(const cxl_kv_key &k) const
	{
		std::ifstream in(spill_file(), std::ios::binary);
		std::string file(std::istreambuf_iterator<char>(in), {});
		Bytes bytes = bytes_of(k, 512);

		return file.find(std::string(bytes.begin(), bytes.end()));
	}

	DaemonProcess daemon_{{"HOT__LIMIT=16MiB", "COLD__SIZE=128MiB", "OBJECTS__SIZE=32MiB"}};
	std::unique_ptr<ObjectClient> client_;
};

TEST_F(Restart, complaint_18_a_restart_keeps_all_and_orphans_nothing)
{
	std::vector<int32_t> results(kNr);
	const auto all = keys(0, kNr);

	ASSERT_EQ(cxl_kv_set_quota(client_->ns, 30 << 20), 0);
	for (int round = 0; round < 2; round++) {
		restart();
		ASSERT_TRUE(back()) << daemon_.log();
		EXPECT_EQ(client_->lookup(key(5)).tier, uint32_t{CXL_KV_TIER_COLD});
		EXPECT_EQ(stats().nr_objects, kNr) << daemon_.log();
		EXPECT_EQ(stats().quota_bytes, 30u << 20);
		for (uint64_t i = 0; i < kNr; i++)
			ASSERT_EQ(client_->load_one(key(i)), 0) << i << "\n" << daemon_.log();
	}
	/* Another engine with another identity is refused as before. */
	auto other = identity();
	other.tp_rank = 1;
	EXPECT_THROW(ObjectClient(daemon_.socket(), other), std::runtime_error);
	ASSERT_EQ(cxl_kv_delete(client_->ns, all.data(), kNr, results.data()), 0);
	EXPECT_TRUE(eventually([&] { return stats().pool_free_bytes == stats().pool_bytes; }));
	restart();
	ASSERT_TRUE(back());
	EXPECT_EQ(stats().pool_free_bytes, stats().pool_bytes);
	EXPECT_EQ(client_->lookup(key(5)).found, uint32_t{CXL_KV_MISS}) << "deleted is deleted";
}

TEST_F(Restart, complaint_12_same_size_bit_rot_is_not_served)
{
	daemon_.terminate();
	const size_t at = find_in_store(key(3));
	ASSERT_NE(at, std::string::npos) << "the object is not in the store";
	{
		std::fstream file(spill_file(), std::ios::in | std::ios::out | std::ios::binary);
		file.seekp(static_cast<std::streamoff>(at + 100));
		file.put(static_cast<char>(bytes_of(key(3), 512)[100] ^ 1));
	}
	daemon_.start();
	ASSERT_TRUE(back());
	EXPECT_EQ(client_->load_one(key(3)), -EIO);
	EXPECT_EQ(client_->lookup(key(3)).found, uint32_t{CXL_KV_MISS});
	EXPECT_EQ(client_->load_one(key(4)), 0);
	EXPECT_EQ(client_->store_one(key(3)), 0) << "recomputed, it is stored again";
	EXPECT_EQ(client_->load_one(key(3)), 0);
}

/* The file says where the bytes of a key are; another's bytes there must not pass for them. */
TEST_F(Restart, a_file_that_is_older_than_the_store_gives_no_other_objects_bytes)
{
	std::vector<int32_t> results(kNr);
	const auto all = keys(0, kNr);

	restart();
	ASSERT_TRUE(back());
	std::filesystem::copy_file(spill_file() + ".objects", daemon_.folder() + "/old");
	ASSERT_EQ(cxl_kv_delete(client_->ns, all.data(), kNr, results.data()), 0);
	ASSERT_TRUE(eventually([&] { return stats().pool_free_bytes == stats().pool_bytes; }));
	for (uint64_t i = 1000; i < 1000 + kNr; i += 10) /* in the same chunks */
		ASSERT_EQ(client_->store(keys(i, 10)), std::vector<int32_t>(10, 0));
	daemon_.terminate();
	std::filesystem::rename(daemon_.folder() + "/old", spill_file() + ".objects");
	daemon_.start();
	ASSERT_TRUE(back());
	for (uint64_t i = 0; i < kNr; i++) {
		int32_t result = client_->load_one(key(i));
		ASSERT_TRUE(result == -EIO || result == -ENOENT)
			<< "object " << i << ": " << result;
		ASSERT_EQ(client_->lookup(key(i)).found, uint32_t{CXL_KV_MISS});
	}
}

TEST_F(Restart, a_killed_daemon_ends_jobs_and_serves_nothing_wrong)
{
	const auto k = keys(5000, 1);
	Bytes bytes(kObjectBytes);
	iovec iov = {bytes.data(), bytes.size()};
	uint64_t id = 0;

	ASSERT_EQ(cxl_kv_reserve(client_->ns, k.data(), 1, 60000, nullptr), 0);
	ASSERT_EQ(client_->submit(CXL_KV_LOAD, {{k[0], 0, &iov, 1}}, 60000, &id), 0);
	daemon_.kill();
	EXPECT_EQ(client_->wait(CXL_KV_LOAD, id), -ENOTCONN);
	EXPECT_EQ(client_->lookup(key(0)).found, uint32_t{CXL_KV_RETRY});
	EXPECT_EQ(client_->submit(CXL_KV_LOAD, {{k[0], 0, &iov, 1}}, 60000, &id), -ENOTCONN);
	daemon_.start();
	ASSERT_TRUE(back());
	EXPECT_EQ(client_->lookup(k[0]).found, uint32_t{CXL_KV_MISS});
	for (uint64_t i = 0; i < kNr; i++) {
		int32_t result = client_->load_one(key(i));
		ASSERT_TRUE(!result || result == -EIO || result == -ENOENT) << result;
	}
	EXPECT_EQ(client_->store_one(k[0]), 0);
	EXPECT_EQ(client_->load_one(k[0]), 0);
}

TEST_F(Restart, complaint_16_a_failed_disk_load_ends_with_an_error_in_time)
{
	using Clock = std::chrono::steady_clock;

	restart();
	ASSERT_TRUE(back());
	ASSERT_EQ(truncate(spill_file().c_str(), 1 << 20), 0);
	const auto begin = Clock::now();
	for (uint64_t i = 0; i < kNr; i += 10) {
		int32_t result = client_->load_one(key(i), 5000);
		EXPECT_TRUE(result == -EIO || result == -ETIMEDOUT || !result) << result;
	}
	EXPECT_LT(Clock::now() - begin, std::chrono::seconds(55));
	EXPECT_EQ(client_->load_one(key(95), 5000), -EIO);
	EXPECT_EQ(client_->lookup(key(95)).found, uint32_t{CXL_KV_MISS});
	EXPECT_EQ(client_->store_one(key(95)), 0);
	EXPECT_EQ(client_->load_one(key(95)), 0);
}

} // namespace

} // namespace cxlkv::test
