/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where a page of node 1 is after a long-term pin, as cudaHostRegister or fixed
 * buffers of io_uring take it. CXL_KV_PINNED_ON says on which node it has to be;
 * onlining.sh runs this on nodes of each kind.
 */
#include "base/fd.h"

#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <liburing.h>
#include <numaif.h>
#include <sys/mman.h>

namespace {

constexpr size_t kBytes = 1 << 20;

int node_of(void *at)
{
	int status = -1;

	EXPECT_EQ(move_pages(0, 1, &at, nullptr, &status, 0), 0);
	return status;
}

TEST(LongTermPin, LeavesThePageOnTheNodeExpected)
{
	const char *expected = getenv("CXL_KV_PINNED_ON");
	if (!expected)
		GTEST_SKIP() << "no CXL_KV_PINNED_ON";
	cxlkv::Mapping map(
		mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		kBytes);
	unsigned long mask = 1ul << 1;

	ASSERT_EQ(mbind(map.data(), kBytes, MPOL_BIND, &mask, 8 * sizeof(mask), 0), 0);
	memset(map.data(), 0x5a, kBytes);
	ASSERT_EQ(node_of(map.data()), 1);

	io_uring ring{};
	iovec buffer{map.data(), kBytes};
	ASSERT_EQ(io_uring_queue_init(4, &ring, 0), 0);
	ASSERT_EQ(io_uring_register_buffers(&ring, &buffer, 1), 0);
	int pinned_on = node_of(map.data());
	printf("# a page of node 1 that is pinned is on node %d\n", pinned_on);
	EXPECT_EQ(pinned_on, atoi(expected));
	/* Where it may stay, it has to: not even its owner can move it. */
	if (pinned_on == 1) {
		void *at = map.data();
		int to = 0, status = 0;
		move_pages(0, 1, &at, &to, &status, MPOL_MF_MOVE);
		EXPECT_EQ(node_of(map.data()), 1);
	}
	for (size_t i = 0; i < kBytes; i++)
		ASSERT_EQ(map.data()[i], std::byte{0x5a}) << i;
	io_uring_queue_exit(&ring);
}

} // namespace
