/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keyed objects of a real daemon: stored, found, loaded, and what of them must never happen. */
#include "lib/object_client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

namespace cxlkv::test {

namespace {

class Objects : public testing::Test {
protected:
	void SetUp() override { daemon_.start(); }

	DaemonProcess daemon_{{"HOT__LIMIT=32MiB", "COLD__SIZE=256MiB", "OBJECTS__SIZE=64MiB"}};
};

TEST_F(Objects, are_found_and_loaded_by_another_client)
{
	ObjectClient a(daemon_.socket()), b(daemon_.socket());
	std::vector<Bytes> bytes;

	EXPECT_EQ(b.lookup(key(1)).found, CXL_KV_MISS);
	EXPECT_EQ(a.store(keys(1, 20)), std::vector<int32_t>(20, 0));
	EXPECT_EQ(b.lookup(key(1)).found, CXL_KV_HIT);
	EXPECT_EQ(b.lookup(key(1)).tier, CXL_KV_TIER_HOT);
	EXPECT_EQ(b.lookup(key(1, kGroup + 1)).found, CXL_KV_MISS)
		<< "another group is another key";
	EXPECT_EQ(b.load(keys(1, 20), &bytes), std::vector<int32_t>(20, 0));
	for (size_t i = 0; i < bytes.size(); i++)
		EXPECT_EQ(bytes[i], bytes_of(key(1 + i)));
	EXPECT_GT(b.lookup(key(1)).estimated_ns, 0u);
	EXPECT_EQ(b.load_one(key(21)), -ENOENT);
	EXPECT_EQ(b.store_one(key(1)), -EEXIST);
	EXPECT_EQ(cxl_kv_lookup_prefix(b.ns, keys(1, 30).data(), 30), 20u);
}

} // namespace

} // namespace cxlkv::test
