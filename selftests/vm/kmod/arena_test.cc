/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Arenas and their manager: what register refuses, who is told what, and how an arena ends. */
#include "vm/kmod/device.h"

#include <csignal>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <vector>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

[[maybe_unused]] auto *const environment = testing::AddGlobalTestEnvironment(new ModuleLoaded);

ino_t inode(int fd)
{
	struct stat st {};

	fstat(fd, &st);
	return st.st_ino;
}

bool has_event(const Fd &manager, int timeout_ms = 0)
{
	pollfd poll_for{manager.get(), POLLIN, 0};

	return poll(&poll_for, 1, timeout_ms) == 1 && (poll_for.revents & POLLIN);
}

/* The next event within some seconds, as (kind, arena); (0, 0) when there is none. */
std::pair<uint32_t, uint32_t> take_event(const Fd &manager)
{
	uint32_t kind = 0, arena = 0;

	if (!has_event(manager, 20000) || next_event(manager, &kind, &arena))
		return {0, 0};
	return {kind, arena};
}

using Event = std::pair<uint32_t, uint32_t>;

class Register : public testing::Test {
protected:
	int with(const std::function<void(cxl_kv_arena_register &)> &change)
	{
		cxl_kv_arena_register arg = parts.argument();

		change(arg);
		return call(client, CXL_KV_IOC_ARENA_REGISTER, &arg);
	}

	ArenaParts parts;
	Fd client = open_device();
	uint32_t arena = 0;
};

TEST_F(Register, ChecksTheGeometry)
{
	using G = cxl_kv_geometry;
	const std::vector<std::function<void(G &)>> bad = {
		[](G &g) { g.nr_slots = 0; },
		[](G &g) { g.nr_slots = CXL_KV_MAX_SLOTS + 1; },
		[](G &g) { g.nr_layers = 0; },
		[](G &g) { g.nr_layers = CXL_KV_MAX_LAYERS + 1; },
		[](G &g) { g.nr_kv_heads = 0; },
		[](G &g) { g.nr_kv_heads = ~0u; },
		[](G &g) { g.head_dim = 0; },
		[](G &g) { g.head_dim = ~0u; },
		[](G &g) { g.elem_bytes = 3; },
		[](G &g) { g.elem_bytes = 0; },
		[](G &g) { g.tokens_per_block = 0; },
		[](G &g) { g.tokens_per_block = 32; }, /* two blocks' worth in one */
		[](G &g) { g.tokens_per_block = 0x80000000; },
		[](G &g) { g.tokens_per_slot = 0; },
		[](G &g) { g.tokens_per_slot = 250; },
		[](G &g) { g.tokens_per_slot = 0xfffffff0; },
		[](G &g) { g.block_bytes = 0; },
		[](G &g) { g.block_bytes = 2048; },
		[](G &g) { g.block_bytes = 4096 + 2048; },
		[](G &g) { g.block_bytes = 2 * CXL_KV_MAX_BLOCK_BYTES; },
		/* Each factor allowed, the product not; it even wraps around 2^64. */
		[](G &g) { g = {65536, 1024, 1024, 1, 1, 1, 0xffffffff, 4096}; },
	};
	for (size_t i = 0; i < bad.size(); i++)
		EXPECT_EQ(with([&](auto &arg) { bad[i](arg.geometry); }), EINVAL) << "case " << i;
}

TEST_F(Register, ChecksTheFiles)
{
	Fd unsealed(memfd_create("kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
	Fd small = sealed_memfd(parts.bytes - 4096), small_table = sealed_memfd(8);
	Fd event(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));

	ASSERT_EQ(ftruncate(unsealed.get(), static_cast<off_t>(parts.bytes)), 0);
	for (int fd : {-1, 9999, null.get(), unsealed.get(), parts.uffd.get(), client.get()}) {
		EXPECT_EQ(with([&](auto &arg) { arg.memory_fd = fd; }), EBADF) << fd;
		EXPECT_EQ(with([&](auto &arg) { arg.table_fd = fd; }), EBADF) << fd;
	}
	for (int fd : {-1, 9999, null.get(), parts.memory.get(), client.get()})
		EXPECT_EQ(with([&](auto &arg) { arg.uffd = fd; }), EBADF) << fd;
	EXPECT_EQ(with([&](auto &arg) { arg.memory_fd = small.get(); }), EINVAL);
	/* All that this process has is right for a child, but the faults would be this process's.
	 */
	EXPECT_EQ(in_child([&] { return with([](auto &) {}); }), EPERM);
	EXPECT_EQ(with([&](auto &arg) { arg.table_fd = small_table.get(); }), EINVAL);
}

TEST_F(Register, ChecksTheMapping)
{
	Mapping copy(mmap(nullptr, parts.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE,
			  parts.memory.get(), 0),
		     parts.bytes);
	uint64_t base = parts.argument().base;

	for (uint64_t bad : {uint64_t{0}, base + 1, base + 4096, ~uint64_t{4095}, uint64_t{1} << 63,
			     reinterpret_cast<uint64_t>(copy.data())})
		EXPECT_EQ(with([&](auto &arg) { arg.base = bad; }), EINVAL) << bad;

	ASSERT_EQ(munmap(parts.map.data() + 8192, 4096), 0);
	EXPECT_EQ(with([](auto &) {}), EINVAL) << "a hole in the mapping";
}

TEST_F(Register, ChecksTheWindows)
{
	uint32_t windows[2] = {0, 128};

	auto set = [&](uint32_t nr, const void *at) {
		return [=](auto &arg) {
			arg.nr_layer_windows = nr;
			arg.layer_windows = reinterpret_cast<uintptr_t>(at);
		};
	};
	EXPECT_EQ(with(set(1, windows)), EINVAL);
	EXPECT_EQ(with(set(3, windows)), EINVAL);
	EXPECT_EQ(with(set(0, windows)), EINVAL);
	EXPECT_EQ(with(set(2, nullptr)), EFAULT);
	EXPECT_EQ(with(set(2, windows)), 0);
}

TEST_F(Register, RefusesWhatIsRegistered)
{
	Fd other = open_device();
	uint32_t again = 0;

	ASSERT_EQ(parts.register_on(client, &arena), 0);
	EXPECT_EQ(parts.register_on(client, &again), EEXIST);
	EXPECT_EQ(parts.register_on(other, &again), EEXIST);
	ASSERT_EQ(unregister(client, arena), 0);
	EXPECT_EQ(parts.register_on(other, &again), 0);
	EXPECT_NE(again, arena) << "numbers are not reused at once";
}

/* Registered as its own, what is mapped over the middle of an arena would be in two. */
TEST_F(Register, RefusesWhatOverlapsAnArena)
{
	ArenaParts over;
	Mapping room(mmap(nullptr, 2 * parts.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		     2 * parts.bytes);
	auto map_at = [&](const ArenaParts &from, std::byte *at) {
		cxl_kv_arena_register arg = from.argument();

		EXPECT_EQ(mmap(at, from.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			       from.memory.get(), 0),
			  at);
		arg.base = reinterpret_cast<uintptr_t>(at);
		return arg;
	};

	cxl_kv_arena_register first = map_at(parts, room.data());
	ASSERT_EQ(call(client, CXL_KV_IOC_ARENA_REGISTER, &first), 0);
	cxl_kv_arena_register second = map_at(over, room.data() + parts.bytes / 2);
	EXPECT_EQ(call(client, CXL_KV_IOC_ARENA_REGISTER, &second), EEXIST);
	ASSERT_EQ(unregister(client, first.arena), 0);
	EXPECT_EQ(call(client, CXL_KV_IOC_ARENA_REGISTER, &second), 0);
}

TEST_F(Register, IsLimited)
{
	std::vector<std::unique_ptr<ArenaParts>> many;
	uint32_t number = 0, refused = 0;

	for (int i = 0; i < CXL_KV_MAX_ARENAS_PER_FILE; i++) {
		many.push_back(std::make_unique<ArenaParts>());
		ASSERT_EQ(many.back()->register_on(client, &number), 0);
	}
	EXPECT_EQ(parts.register_on(client, &refused), ENOSPC);
	ASSERT_EQ(unregister(client, number), 0);
	EXPECT_EQ(parts.register_on(client, &number), 0);
}

/* One signal a call, each time a little later, so that many come while it is under way. */
TEST_F(Register, IsNotEndedByASignal)
{
	const itimerval never{};
	struct sigaction action {};

	action.sa_handler = [](int) {};
	ASSERT_EQ(sigaction(SIGALRM, &action, nullptr), 0);
	for (int us = 40; us <= 6000; us += 40) {
		const itimerval once{{0, 0}, {0, us}};

		setitimer(ITIMER_REAL, &once, nullptr);
		int error = parts.register_on(client, &arena);
		setitimer(ITIMER_REAL, &never, nullptr);
		ASSERT_EQ(error, 0) << strerror(error) << ", signal after " << us << " us";
		ASSERT_EQ(unregister(client, arena), 0);
	}
}

TEST_F(Register, ShowsTheArenaInSysfs)
{
	ASSERT_EQ(parts.register_on(client, &arena), 0);
	std::string dir = "/sys/class/cxl_kv/arena" + std::to_string(arena);

	EXPECT_EQ(read_file(dir + "/pid"), std::to_string(getpid()));
	EXPECT_EQ(read_file(dir + "/nr_blocks"), "128");
	EXPECT_EQ(read_file(dir + "/geometry/head_dim"), "64");
	ASSERT_EQ(unregister(client, arena), 0);
	EXPECT_NE(access(dir.c_str(), F_OK), 0);
}

TEST_F(Register, CountsBlocksByState)
{
	ASSERT_EQ(parts.register_on(client, &arena), 0);
	std::string dir = "/sys/class/cxl_kv/arena" + std::to_string(arena) + "/blocks/";
	auto set = [&](unsigned first, unsigned nr, uint64_t word) {
		for (unsigned i = first; i < first + nr; i++)
			ASSERT_EQ(pwrite(parts.table.get(), &word, 8, i * 8), 8);
	};

	EXPECT_EQ(read_file(dir + "empty"), "128");
	set(0, 1, CXL_KV_RESIDENT);
	set(10, 2, CXL_KV_RESIDENT | CXL_KV_WORD_CLEAN);
	set(20, 3, CXL_KV_RESIDENT | CXL_KV_WORD_CLEAN | 5 * CXL_KV_WORD_LEASES_ONE);
	set(30, 4, CXL_KV_COLD | CXL_KV_WORD_CLEAN);
	set(40, 1, CXL_KV_RESTORING | CXL_KV_WORD_LEASES_ONE);
	set(50, 6, CXL_KV_LOST);
	set(60, 1, CXL_KV_SPILLING | CXL_KV_WORD_TIER_MASK);
	EXPECT_EQ(read_file(dir + "dirty"), "2");
	EXPECT_EQ(read_file(dir + "clean"), "2");
	EXPECT_EQ(read_file(dir + "leased"), "3");
	EXPECT_EQ(read_file(dir + "absent"), "5");
	EXPECT_EQ(read_file(dir + "lost"), "6");
	EXPECT_EQ(read_file(dir + "empty"), "110");
}

TEST_F(Register, KeepsTheModule)
{
	ASSERT_EQ(parts.register_on(client, &arena), 0);
	EXPECT_EQ(unload_module(), EAGAIN);
}

class Manager : public Register {
protected:
	void SetUp() override
	{
		ASSERT_EQ(parts.register_on(client, &arena), 0);
		ASSERT_EQ(attach(manager), 0);
	}
	cxl_kv_arena_get get(const Fd &from, int expected = 0)
	{
		cxl_kv_arena_get arg{};

		arg.size = sizeof(arg);
		arg.arena = arena;
		EXPECT_EQ(call(from, CXL_KV_IOC_ARENA_GET, &arg), expected);
		return arg;
	}

	Fd manager = open_device();
};

TEST_F(Manager, IsOne)
{
	Fd second = open_device();

	EXPECT_EQ(attach(second), EBUSY);
	EXPECT_EQ(attach(manager), EBUSY);
	manager.reset();
	EXPECT_EQ(attach(second), 0);
}

TEST_F(Manager, NeedsACapability)
{
	manager.reset();
	EXPECT_EQ(in_child([&] {
			  Fd device = open_device();
			  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
			  __user_cap_data_struct none[2] = {};

			  syscall(SYS_capset, &header, none);
			  return attach(device);
		  }),
		  EPERM);
}

TEST_F(Manager, NeedsItInTheInitialUserNamespace)
{
	manager.reset();
	EXPECT_EQ(in_child([&] {
			  Fd device = open_device();

			  return unshare(CLONE_NEWUSER) ? errno : attach(device);
		  }),
		  EPERM);
}

TEST_F(Manager, ServesAClientInAnotherUserNamespace)
{
	int registered[2], seen[2];
	char byte = 0;

	ASSERT_EQ(pipe2(registered, O_CLOEXEC), 0);
	ASSERT_EQ(pipe2(seen, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		Fd device = open_device();
		ArenaParts own;
		uint32_t number = 0;
		cxl_kv_hints none{sizeof(none), 0, 0, 0, 0, 0, 0};

		/* What it may do needs no capability, and it has none where it counts. */
		if (unshare(CLONE_NEWUSER) || own.register_on(device, &number))
			_exit(1);
		none.arena = number;
		if (call(device, CXL_KV_IOC_HINT, &none) || attach(device) != EPERM)
			_exit(2);
		/* Arenas of others are not there for it. */
		none.arena = arena;
		if (call(device, CXL_KV_IOC_HINT, &none) != ENOENT)
			_exit(3);
		if (write(registered[1], "x", 1) != 1 || read(seen[0], &byte, 1) != 1)
			_exit(4);
		_exit(unregister(device, number) ? 5 : 0);
	}
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_ADDED, arena));
	Event added = take_event(manager);
	ASSERT_EQ(added.first, static_cast<uint32_t>(CXL_KV_EVENT_ARENA_ADDED));
	ASSERT_EQ(read(registered[0], &byte, 1), 1);
	arena = added.second;
	cxl_kv_arena_get got = get(manager);
	Fd memory(got.memory_fd), uffd(got.uffd), table(got.table_fd);
	EXPECT_EQ(got.pid, static_cast<uint32_t>(pid));
	ASSERT_EQ(write(seen[1], "x", 1), 1);
	int status = 0;
	waitpid(pid, &status, 0);
	EXPECT_EQ(WEXITSTATUS(status), 0);
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_REMOVED, added.second));
}

TEST_F(Manager, GetsTheArenaAsItWasRegistered)
{
	cxl_kv_arena_get got = get(manager);
	Fd memory(got.memory_fd), uffd(got.uffd), table(got.table_fd);

	EXPECT_EQ(inode(memory.get()), inode(parts.memory.get()));
	EXPECT_EQ(inode(table.get()), inode(parts.table.get()));
	EXPECT_EQ(fcntl(memory.get(), F_GETFD), FD_CLOEXEC);
	EXPECT_EQ(memcmp(&got.geometry, &parts.geometry, sizeof(got.geometry)), 0);
	EXPECT_EQ(got.base, reinterpret_cast<uint64_t>(parts.map.data()));
	EXPECT_EQ(got.pid, static_cast<uint32_t>(getpid()));
	EXPECT_EQ(got.key, 0u);
	EXPECT_EQ(got.nr_layer_windows, 0u);
	/* It is the client's userfaultfd: the handshake works once. */
	uffdio_api api{UFFD_API, 0, 0};
	EXPECT_EQ(ioctl(uffd.get(), UFFDIO_API, &api), 0);
}

TEST_F(Manager, GetsTheWindows)
{
	ArenaParts windowed;
	cxl_kv_arena_register arg = windowed.argument();
	uint32_t windows[2] = {0, 128}, got[4] = {};

	arg.nr_layer_windows = 2;
	arg.layer_windows = reinterpret_cast<uintptr_t>(windows);
	ASSERT_EQ(call(client, CXL_KV_IOC_ARENA_REGISTER, &arg), 0);

	cxl_kv_arena_get get_arg{};
	get_arg.size = sizeof(get_arg);
	get_arg.arena = arg.arena;
	get_arg.nr_layer_windows = 1;
	get_arg.layer_windows = reinterpret_cast<uintptr_t>(got);
	EXPECT_EQ(call(manager, CXL_KV_IOC_ARENA_GET, &get_arg), ENOSPC);
	get_arg.nr_layer_windows = 4;
	ASSERT_EQ(call(manager, CXL_KV_IOC_ARENA_GET, &get_arg), 0);
	Fd memory(get_arg.memory_fd), uffd(get_arg.uffd), table(get_arg.table_fd);
	EXPECT_EQ(get_arg.nr_layer_windows, 2u);
	EXPECT_EQ(got[1], 128u);
}

TEST_F(Manager, LeavesNoDescriptorBehindOnAnError)
{
	/* All of the argument can be read; it cannot be written. */
	Mapping page(
		mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		4096);
	auto *arg = reinterpret_cast<cxl_kv_arena_get *>(page.data());
	Fd lowest(dup(0));
	int expected = lowest.get();

	arg->size = sizeof(*arg);
	arg->arena = arena;
	ASSERT_EQ(mprotect(page.data(), 4096, PROT_READ), 0);
	EXPECT_EQ(call(manager, CXL_KV_IOC_ARENA_GET, arg), EFAULT);
	lowest.reset();
	lowest.reset(dup(0));
	EXPECT_EQ(lowest.get(), expected);
}

TEST_F(Manager, KeyOutlivesIt)
{
	cxl_kv_arena_set_key key{sizeof(key), 0, arena, 0, 0x1122334455667788};
	Fd next = open_device();

	ASSERT_EQ(call(manager, CXL_KV_IOC_ARENA_SET_KEY, &key), 0);
	manager.reset();
	ASSERT_EQ(attach(next), 0);
	EXPECT_EQ(take_event(next), Event(CXL_KV_EVENT_ARENA_ADDED, arena));
	cxl_kv_arena_get got = get(next);
	Fd memory(got.memory_fd), uffd(got.uffd), table(got.table_fd);
	EXPECT_EQ(got.key, 0x1122334455667788u);
}

TEST_F(Manager, IsToldOfArenas)
{
	uint32_t kind = 0, number = 0;

	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_ADDED, arena));
	EXPECT_FALSE(has_event(manager));
	EXPECT_EQ(next_event(manager, &kind, &number), EAGAIN);
	ASSERT_EQ(unregister(client, arena), 0);
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_REMOVED, arena));
	get(manager, ENOENT);
}

TEST_F(Manager, IsToldAgainOfWhatCouldNotBeWritten)
{
	/* Can be read, not written. */
	Mapping page(
		mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		4096);
	auto *arg = reinterpret_cast<cxl_kv_next_event *>(page.data());

	arg->size = sizeof(*arg);
	ASSERT_EQ(mprotect(page.data(), 4096, PROT_READ), 0);
	EXPECT_EQ(call(manager, CXL_KV_IOC_NEXT_EVENT, arg), EFAULT);
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_ADDED, arena));
	ASSERT_EQ(unregister(client, arena), 0);
	EXPECT_EQ(call(manager, CXL_KV_IOC_NEXT_EVENT, arg), EFAULT);
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_REMOVED, arena));
	EXPECT_FALSE(has_event(manager));
}

TEST_F(Manager, IsWokenThroughAnEpollThatKnewItsFileBefore)
{
	Fd next = open_device(), epoll(epoll_create1(EPOLL_CLOEXEC));
	epoll_event event{};

	event.events = EPOLLIN;
	ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, next.get(), &event), 0);
	ASSERT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 1);
	EXPECT_EQ(event.events, static_cast<uint32_t>(EPOLLERR)) << "it is not the manager yet";
	manager.reset();
	ASSERT_EQ(attach(next), 0);
	EXPECT_EQ(take_event(next), Event(CXL_KV_EVENT_ARENA_ADDED, arena));
	ASSERT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 0);
	ASSERT_EQ(unregister(client, arena), 0);
	EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 5000), 1);
	EXPECT_EQ(take_event(next), Event(CXL_KV_EVENT_ARENA_REMOVED, arena));
}

TEST_F(Manager, IsNotToldOfWhatItNeverSaw)
{
	ASSERT_EQ(unregister(client, arena), 0);
	EXPECT_FALSE(has_event(manager));
}

TEST_F(Manager, SeesTheEndOfAClosedFile)
{
	take_event(manager);
	client.reset();
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_REMOVED, arena));
}

/* A client in a process of its own, which does @then with its registered arena. */
class DyingClient : public testing::Test {
protected:
	void start(const std::function<void()> &then)
	{
		ASSERT_EQ(attach(manager), 0);
		ASSERT_EQ(pipe2(go, 0), 0);
		pid = fork();
		if (pid == 0) {
			Fd device(open("/dev/cxl_kv", O_RDWR)); /* stays open over exec */
			ArenaParts parts;
			uint32_t number = 0;
			char byte = 0;

			if (parts.register_on(device, &number) || read(go[0], &byte, 1) != 1)
				_exit(1);
			then();
			_exit(0);
		}
		added = take_event(manager);
		ASSERT_EQ(added.first, static_cast<uint32_t>(CXL_KV_EVENT_ARENA_ADDED));
	}
	void let_go() { ASSERT_EQ(write(go[1], "x", 1), 1); }
	void TearDown() override
	{
		kill(pid, SIGKILL);
		waitpid(pid, nullptr, 0);
		close(go[0]);
		close(go[1]);
	}

	Fd manager = open_device();
	pid_t pid = -1;
	int go[2] = {-1, -1};
	Event added;
};

TEST_F(DyingClient, Killed)
{
	start([] { pause(); });
	kill(pid, SIGKILL);
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_REMOVED, added.second));
}

TEST_F(DyingClient, ExecsWithTheFileOpen)
{
	start([] { execl("/bin/sleep", "sleep", "60", nullptr); });
	let_go();
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_REMOVED, added.second));
	EXPECT_EQ(kill(pid, 0), 0) << "the process itself lives on";
}

TEST_F(DyingClient, LeavesAChildWithTheFileOpen)
{
	start([&] {
		char byte = 0;

		if (fork() == 0)
			_exit(read(go[0], &byte, 1) != 1);
	});
	let_go();
	EXPECT_EQ(take_event(manager), Event(CXL_KV_EVENT_ARENA_REMOVED, added.second));
	let_go(); /* the child, which had the file until now */
}

} // namespace
