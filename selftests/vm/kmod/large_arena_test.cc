/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arenas whose size costs the kernel something: time to count their blocks, memory for their heads.
 */
#include "vm/kmod/device.h"

#include <ctime>
#include <thread>

using namespace cxlkv;
using namespace cxlkv::test;

[[maybe_unused]] static auto *const environment =
	testing::AddGlobalTestEnvironment(new ModuleLoaded);

/* A table of 8 GiB, all holes: to count it takes seconds. */
TEST(LargeArena, EndsWhileItsBlocksAreCounted)
{
	cxl_kv_geometry shape = small_geometry();
	shape.nr_slots = 1;
	shape.nr_layers = shape.nr_kv_heads = 256;
	shape.tokens_per_slot = 16384 * shape.tokens_per_block;
	const ArenaParts parts(shape);
	Fd client = open_device();
	uint32_t arena = 0;

	ASSERT_EQ(parts.register_on(client, &arena), 0);
	std::string path = "/sys/class/cxl_kv/arena" + std::to_string(arena) + "/blocks/empty";
	Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
	int error = 0;
	std::thread reader([&] {
		char text[32];
		error = read(file.get(), text, sizeof(text)) > 0 ? 0 : errno;
	});
	clockid_t spent_by_it;
	timespec spent{};
	ASSERT_EQ(pthread_getcpuclockid(reader.native_handle(), &spent_by_it), 0);
	while (!spent.tv_sec && spent.tv_nsec < 50000000 && clock_gettime(spent_by_it, &spent) == 0)
		usleep(1000);
	EXPECT_EQ(unregister(client, arena), 0);
	reader.join();
	EXPECT_EQ(error, ENODEV) << "it waited for the end of the count";
}

/* What a geometry takes in the kernel, here some 50 MiB for a million heads, is the client's. */
TEST(LargeArena, IsChargedToItsClient)
{
	std::ofstream("/sys/fs/cgroup/cgroup.subtree_control") << "+memory";
	std::string group = read_file("/proc/self/cgroup").substr(strlen("0::"));
	auto charged = [&] {
		return std::stoul(read_file("/sys/fs/cgroup" + group + "/memory.current"));
	};
	cxl_kv_geometry shape = small_geometry();
	shape.nr_layers = shape.nr_kv_heads = 1024;
	shape.tokens_per_slot = shape.tokens_per_block;
	const ArenaParts parts(shape);
	Fd client = open_device();
	uint32_t arena = 0;

	size_t before = charged();
	ASSERT_EQ(parts.register_on(client, &arena), 0);
	EXPECT_GT(charged(), before + (32u << 20));
	ASSERT_EQ(unregister(client, arena), 0);
	for (int i = 0; i < 1000 && charged() > before + (8u << 20); i++)
		usleep(10 * 1000);
	EXPECT_LT(charged(), before + (8u << 20));
}
