/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The module's whole life, many times over: loaded, a node added, an arena on it in use by a client
 * and a manager, the node removed below the client's pages, unloaded. The kernel must have no more
 * objects of any kind afterwards.
 */
#include "vm/kmod/device.h"

#include <dirent.h>
#include <map>
#include <numaif.h>
#include <sstream>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

constexpr int rounds = 200;
/* What kernel and C library allocate once and keep is there by then. */
constexpr int warm_up = 20;

/* Cache -> objects in use, with what was only waiting to be freed given back. */
std::map<std::string, long> slab_objects()
{
	std::map<std::string, long> objects;
	DIR *caches = opendir("/sys/kernel/slab");

	std::ofstream("/proc/sys/vm/drop_caches") << "3";
	while (dirent *cache = readdir(caches))
		if (cache->d_name[0] != '.')
			std::ofstream(std::string("/sys/kernel/slab/") + cache->d_name + "/shrink")
				<< "1";
	closedir(caches);
	std::ifstream info("/proc/slabinfo");
	for (std::string line; std::getline(info, line);) {
		std::string name;
		long active = 0;

		if (std::istringstream(line) >> name >> active)
			objects[name] = active;
	}
	return objects;
}

/* Caches that have grown by an object a round or more, as text. */
std::string grown(const std::map<std::string, long> &before)
{
	std::string text;

	for (auto &[name, active] : slab_objects()) {
		auto old = before.find(name);
		long growth = active - (old == before.end() ? 0 : old->second);

		if (growth >= rounds - warm_up)
			text += name + " by " + std::to_string(growth) + " ";
	}
	return text;
}

int fill_on_node1(const ArenaParts &parts)
{
	auto *words = reinterpret_cast<uint64_t *>(parts.map.data());
	unsigned long mask = 1ul << 1;
	int node = -1;

	if (mbind(parts.map.data(), parts.bytes, MPOL_BIND, &mask, 8 * sizeof(mask), 0))
		return 3;
	for (size_t i = 0; i < parts.bytes / sizeof(*words); i++)
		words[i] = i * 0x9e3779b97f4a7c15;
	if (get_mempolicy(&node, nullptr, 0, words, MPOL_F_NODE | MPOL_F_ADDR) || node != 1)
		return 4;
	return 0;
}

bool is_filled(const ArenaParts &parts)
{
	auto *words = reinterpret_cast<uint64_t *>(parts.map.data());

	for (size_t i = 0; i < parts.bytes / sizeof(*words); i++)
		if (words[i] != i * 0x9e3779b97f4a7c15)
			return false;
	return true;
}

int send_hint(const Fd &device, uint32_t arena)
{
	cxl_kv_hint hint{};
	cxl_kv_hints arg{};

	hint.kind = CXL_KV_HINT_SCORE;
	hint.score = 1000;
	hint.nr_blocks = 1;
	arg.size = sizeof(arg);
	arg.arena = arena;
	arg.nr = 1;
	arg.hints = reinterpret_cast<uintptr_t>(&hint);
	return call(device, CXL_KV_IOC_HINT, &arg);
}

/* A client in a process of its own; its number is its exit status, 0 if all was as it must be. */
int client(int ready, int go)
{
	cxl_kv_geometry shape = small_geometry();
	uint32_t arena = 0;
	char word = 'r';

	shape.tokens_per_slot *= 8; /* 4 MiB */
	ArenaParts parts(shape);
	Fd device = open_device();
	if (parts.register_on(device, &arena))
		return 2;
	if (int error = fill_on_node1(parts))
		return error;
	if (send_hint(device, arena))
		return 5;
	if (write(ready, &word, 1) != 1 || read(go, &word, 1) != 1)
		return 6;
	return is_filled(parts) ? 0 : 7;
}

/* The manager's part of a round: the arena's event, its hint, a few passes over its pages. */
void manage(const Fd &device)
{
	uint32_t kind = 0, arena = 0;
	cxl_kv_hint hint{};
	cxl_kv_hints_read hints{};
	cxl_kv_sample_set sample{};

	ASSERT_EQ(next_event(device, &kind, &arena), 0);
	ASSERT_EQ(kind, uint32_t{CXL_KV_EVENT_ARENA_ADDED});
	hints.size = sizeof(hints);
	hints.arena = arena;
	hints.nr = 1;
	hints.hints = reinterpret_cast<uintptr_t>(&hint);
	ASSERT_EQ(call(device, CXL_KV_IOC_HINTS_READ, &hints), 0);
	EXPECT_EQ(hint.score, 1000);
	sample.size = sizeof(sample);
	sample.arena = arena;
	sample.interval_ms = 10;
	sample.budget_permil = 1000;
	sample.way = CXL_KV_SAMPLE_ACCESSED;
	sample.flags = CXL_KV_SAMPLE_FLUSH_TLB;
	ASSERT_EQ(call(device, CXL_KV_IOC_SAMPLE_SET, &sample), 0);
}

void round(const std::string &parameters)
{
	int ready[2], go[2], status = -1;
	char word = 'g';

	ASSERT_EQ(load_module(parameters.c_str()), 0);
	{
		Fd manager = open_device();

		ASSERT_EQ(attach(manager), 0);
		ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
		ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
		pid_t pid = fork();
		if (pid == 0)
			_exit(client(ready[1], go[0]));
		close(ready[1]);
		close(go[0]);
		EXPECT_EQ(read(ready[0], &word, 1), 1) << "the client did not get ready";
		manage(manager);
		std::ofstream("/sys/class/cxl_kv/node1/remove") << "1" << std::flush;
		EXPECT_EQ(read_file("/sys/class/cxl_kv/node1/state"), "removed");
		EXPECT_EQ(unload_module(), EAGAIN) << "the arena is in use";
		EXPECT_EQ(write(go[1], "g", 1), 1);
		EXPECT_EQ(waitpid(pid, &status, 0), pid);
		EXPECT_EQ(status, 0) << "exit status of the client: " << WEXITSTATUS(status);
		close(ready[0]);
		close(go[1]);
	}
	ASSERT_EQ(unload_module(), 0);
	ASSERT_NE(access("/sys/devices/system/node/node1", F_OK), 0) << "the node is still there";
}

TEST(Rounds, LeaveTheKernelAsItWas)
{
	const char *base = getenv("KV_NODE1_BASE"), *size = getenv("KV_NODE1_SIZE");
	std::map<std::string, long> before;
	std::string more;

	ASSERT_TRUE(base && size);
	std::ofstream("/sys/devices/system/memory/auto_online_blocks") << "online_movable";
	for (int i = 0; i < rounds && !HasFailure(); i++) {
		SCOPED_TRACE("round " + std::to_string(i));
		if (i == warm_up)
			before = slab_objects();
		round(std::string("node=1 base=") + base + " size=" + size);
	}
	ASSERT_FALSE(before.empty());
	/* What is freed by RCU and by workers takes its time. */
	for (int i = 0; i < 100 && !(more = grown(before)).empty(); i++)
		usleep(100 * 1000);
	EXPECT_EQ(more, "") << "kernel objects have become more, one a round at least";
}

} // namespace
