/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Everything at once, for a while: clients that register, hint, map, tear down
 * and die in the middle; managers that attach, read, sample and let go. What is
 * checked is that calls only fail in the ways they may, that the module can be
 * removed afterwards, and, by the harness, that the kernel's log stays clean.
 */
#include "vm/kmod/device.h"

#include <chrono>
#include <random>
#include <set>
#include <thread>
#include <vector>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

[[maybe_unused]] auto *const environment = testing::AddGlobalTestEnvironment(new ModuleLoaded);

constexpr auto duration = std::chrono::seconds(20);

/* One client thread's life: arenas come and go until @until. 0, or the errno that must not be. */
int live(std::chrono::steady_clock::time_point until, unsigned seed)
{
	std::minstd_rand random(seed);
	Fd device(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));
	cxl_kv_hint hints[64] = {};

	while (std::chrono::steady_clock::now() < until) {
		ArenaParts parts;
		uint32_t arena = 0;
		uint64_t offset = 0;
		int error = parts.register_with_ring(device, 64, &arena, &offset);

		if (error)
			return error;
		void *ring = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, device.get(),
				  static_cast<off_t>(offset));
		if (ring == MAP_FAILED)
			return errno;
		for (int i = 0; i < 20; i++) {
			for (auto &hint : hints)
				hint = {.kind = static_cast<__u8>(random() % 10),
					.priority = 0,
					.score = 0,
					.slot = static_cast<__u32>(random() % 3),
					.head = 0,
					.block = 0,
					.nr_blocks = static_cast<__u32>(random() % 2),
					.position = 0,
					.lifetime_ms = 0,
					.reserved = 0};
			cxl_kv_hints batch{sizeof(batch),
					   0,
					   arena,
					   64,
					   reinterpret_cast<uintptr_t>(hints),
					   0,
					   0};
			error = call(device, CXL_KV_IOC_HINT, &batch);
			if (error && error != EINVAL)
				return error;
			/* The ring gets garbage, header and all. */
			for (size_t at = 0; at < 8192; at += 64)
				static_cast<volatile uint32_t *>(ring)[at / 4] =
					static_cast<uint32_t>(random());
			memset(parts.map.data() + random() % 64 * 4096, i, 64 * 4096);
			/* Something else in the middle of the range. */
			if (random() % 4 == 0 &&
			    mmap(parts.map.data() + random() % 64 * 4096, 4096,
				 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				 -1, 0) == MAP_FAILED)
				return errno;
		}
		bool early = random() % 2;
		if (early)
			munmap(ring, 8192);
		/* The arena ends by a call, or with the last of its open file and the ring's
		 * mapping. */
		bool by_call = random() % 4;
		error = by_call ? unregister(device, arena) : 0;
		if (error)
			return error;
		if (!early)
			munmap(ring, 8192);
		if (!by_call)
			device.reset(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));
	}
	return 0;
}

/* Reads all there is of an arena. ENOENT: it ended meanwhile. */
int look_at(const Fd &manager, uint32_t arena, unsigned way)
{
	std::vector<cxl_kv_hint> hints(256);
	cxl_kv_head head{};
	cxl_kv_arena_get get{};
	cxl_kv_arena_set_key key{sizeof(key), 0, arena, 0, arena};
	cxl_kv_hints_read read{};
	cxl_kv_state_read state{
		sizeof(state), 0, arena, 0, 1, 0, reinterpret_cast<uintptr_t>(&head)};
	cxl_kv_sample_set set{
		sizeof(set),    way == CXL_KV_SAMPLE_ACCESSED ? CXL_KV_SAMPLE_FLUSH_TLB : 0,
		arena,          way,
		way ? 10u : 0u, way ? 500u : 0u};

	get.size = sizeof(get);
	get.arena = read.arena = arena;
	read.size = sizeof(read);
	read.nr = 256;
	read.hints = reinterpret_cast<uintptr_t>(hints.data());
	int error = call(manager, CXL_KV_IOC_ARENA_GET, &get);
	if (error)
		return error;
	Fd memory(get.memory_fd), uffd(get.uffd), table(get.table_fd);
	for (auto &[request, argument] :
	     std::vector<std::pair<unsigned long, void *>>{{CXL_KV_IOC_ARENA_SET_KEY, &key},
							   {CXL_KV_IOC_HINTS_READ, &read},
							   {CXL_KV_IOC_HEADS_READ, &state},
							   {CXL_KV_IOC_SAMPLE_SET, &set}}) {
		error = call(manager, request, argument);
		if (error)
			return error;
	}
	return 0;
}

/* A manager that attaches for a moment, again and again. 0, or the errno that must not be. */
int manage(std::chrono::steady_clock::time_point until, unsigned seed)
{
	std::minstd_rand random(seed);

	while (std::chrono::steady_clock::now() < until) {
		Fd manager(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));
		std::set<uint32_t> known;
		uint32_t kind = 0, arena = 0;

		if (int error = attach(manager))
			return error;
		for (int i = 0; i < 200; i++) {
			int error = next_event(manager, &kind, &arena);
			if (!error && kind == CXL_KV_EVENT_ARENA_ADDED)
				known.insert(arena);
			else if (!error && !known.erase(arena))
				return EPROTO; /* told of the end of what it never knew */
			else if (error && error != EAGAIN)
				return error;
			for (uint32_t one : known) {
				error = look_at(manager, one, random() % 3);
				if (error && error != ENOENT)
					return error;
			}
		}
	}
	return 0;
}

pid_t start(const std::function<int()> &body)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(body());
	return pid;
}

TEST(Stress, EverythingAtOnce)
{
	auto until = std::chrono::steady_clock::now() + duration;
	std::vector<pid_t> children;

	for (unsigned i = 0; i < 3; i++)
		children.push_back(start([=] {
			int errors[2] = {};
			std::thread other([&] { errors[1] = live(until, 100 + i); });

			errors[0] = live(until, i);
			other.join();
			return errors[0] ? errors[0] : errors[1];
		}));
	children.push_back(start([=] { return manage(until, 7); }));
	/* And some that die in the middle of it. */
	while (std::chrono::steady_clock::now() < until) {
		pid_t pid = start([=] { return live(until, static_cast<unsigned>(getpid())); });

		usleep(100 * 1000);
		kill(pid, SIGKILL);
		waitpid(pid, nullptr, 0);
	}
	for (pid_t pid : children) {
		int status = 0;

		waitpid(pid, &status, 0);
		EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
		EXPECT_EQ(WEXITSTATUS(status), 0) << strerror(WEXITSTATUS(status));
	}
}

} // namespace
