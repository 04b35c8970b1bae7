/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Hot-removal while pages of two processes live on the node: one with private
 * memory, one with an arena. Their data must survive, the module must not go
 * before the arena does.
 */
#include "vm/kmod/device.h"

#include <numaif.h>
#include <sys/uio.h>
#include <vector>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

constexpr size_t bytes = 48u << 20;
constexpr char class_dir[] = "/sys/class/cxl_kv/node1/";

/* A process with memory on node 1: fills, says so, waits, then checks what it wrote. */
class Holder {
public:
	explicit Holder(bool with_arena)
	{
		EXPECT_EQ(pipe2(to_, 0), 0);
		EXPECT_EQ(pipe2(from_, 0), 0);
		pid_ = fork();
		if (pid_ == 0)
			_exit(with_arena ? arena() : private_memory());
		close(from_[1]);
		EXPECT_EQ(wait_word(from_[0]), 'r') << "holder did not get ready";
	}
	~Holder()
	{
		kill(pid_, SIGKILL);
		waitpid(pid_, nullptr, 0);
		for (int fd : {to_[0], to_[1], from_[0]})
			close(fd);
	}
	/* Whether every word was still there. Ends the process. */
	bool check()
	{
		EXPECT_EQ(write(to_[1], "c", 1), 1);
		return wait_word(from_[0]) == 'g';
	}

private:
	static char wait_word(int fd)
	{
		char word = 0;

		return read(fd, &word, 1) == 1 ? word : 0;
	}
	int private_memory()
	{
		Mapping map(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			    bytes);

		return hold(map);
	}
	int arena()
	{
		cxl_kv_geometry shape = small_geometry();
		shape.tokens_per_slot = 256 * (bytes / (512 << 10));
		ArenaParts parts(shape);
		Fd device = open_device();
		uint32_t number = 0;

		return parts.register_on(device, &number) ? 2 : hold(parts.map);
	}
	int hold(const Mapping &map)
	{
		auto *words = reinterpret_cast<uint64_t *>(map.data());
		size_t nr = map.size() / sizeof(*words);
		unsigned long mask = 1ul << 1;
		uint64_t seed = static_cast<uint64_t>(getpid()) << 32;
		int node = -1;

		if (mbind(map.data(), map.size(), MPOL_BIND, &mask, 8 * sizeof(mask), 0))
			return 3;
		for (size_t i = 0; i < nr; i++)
			words[i] = seed + i;
		if (get_mempolicy(&node, nullptr, 0, map.data(), MPOL_F_NODE | MPOL_F_ADDR) ||
		    node != 1)
			return 4;
		if (write(from_[1], "r", 1) != 1 || wait_word(to_[0]) != 'c')
			return 5;
		for (size_t i = 0; i < nr; i++)
			if (words[i] != seed + i)
				return 6;
		if (get_mempolicy(&node, nullptr, 0, map.data(), MPOL_F_NODE | MPOL_F_ADDR) ||
		    node != 0)
			return 7;
		return write(from_[1], "g", 1) != 1;
	}

	pid_t pid_ = -1;
	int to_[2], from_[2];
};

int remove_node()
{
	Fd verb(open((std::string(class_dir) + "remove").c_str(), O_WRONLY | O_CLOEXEC));

	return write(verb.get(), "1", 1) == 1 ? 0 : errno;
}

TEST(Removal, KeepsLivePagesOfTwoProcesses)
{
	const char *base = getenv("KV_NODE1_BASE"), *size = getenv("KV_NODE1_SIZE");

	if (!base || !size)
		GTEST_SKIP() << "no reserved range in this guest";
	/* The kernel's own allocations on the node could not be moved away. */
	std::ofstream("/sys/devices/system/memory/auto_online_blocks") << "online_movable";
	ASSERT_EQ(load_module((std::string("node=1 base=") + base + " size=" + size).c_str()), 0);
	{
		Holder one(false), two(true);

		EXPECT_EQ(unload_module(), EAGAIN) << "memory is added";
		ASSERT_EQ(remove_node(), 0);
		EXPECT_EQ(read_file(std::string(class_dir) + "state"), "removed");
		EXPECT_EQ(unload_module(), EAGAIN) << "an arena is open";
		EXPECT_TRUE(one.check());
		EXPECT_TRUE(two.check());
	}
	EXPECT_EQ(unload_module(), 0);
	EXPECT_FALSE(read_file("/proc/iomem").empty());
}

/* Whether the page at @at holds @value on node 1. */
bool is_on_node1(const Mapping &map, std::byte value)
{
	int node = -1;

	EXPECT_EQ(get_mempolicy(&node, nullptr, 0, map.data(), MPOL_F_NODE | MPOL_F_ADDR), 0);
	return node == 1 && map.data()[0] == value;
}

TEST(Removal, IsRefusedWhileAPageIsPinned)
{
	const char *base = getenv("KV_NODE1_BASE"), *size = getenv("KV_NODE1_SIZE");

	if (!base || !size)
		GTEST_SKIP() << "no reserved range in this guest";
	std::ofstream("/sys/devices/system/memory/auto_online_blocks") << "online_movable";
	ASSERT_EQ(load_module((std::string("remove_timeout_ms=3000 node=1 base=") + base +
			       " size=" + size)
				      .c_str()),
		  0);
	{
		Mapping map(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0),
			    4096);
		unsigned long mask = 1ul << 1;
		int ends[2];

		ASSERT_EQ(mbind(map.data(), 4096, MPOL_BIND, &mask, 8 * sizeof(mask), 0), 0);
		map.data()[0] = std::byte{42};
		/* A pipe that was given the page holds it: it cannot move, nor be told to let go.
		 */
		ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
		iovec part{map.data(), 4096};
		ASSERT_EQ(vmsplice(ends[1], &part, 1, 0), 4096);

		EXPECT_EQ(remove_node(), EBUSY);
		EXPECT_EQ(read_file(std::string(class_dir) + "state"), "online");
		EXPECT_TRUE(is_on_node1(map, std::byte{42}));
		EXPECT_EQ(unload_module(), EAGAIN) << "memory is still added";
		EXPECT_EQ(remove_node(), EBUSY) << "and it stays refused";
		close(ends[0]);
		close(ends[1]);
		EXPECT_EQ(remove_node(), 0);
		EXPECT_EQ(map.data()[0], std::byte{42});
	}
	EXPECT_EQ(unload_module(), 0);
}

} // namespace
