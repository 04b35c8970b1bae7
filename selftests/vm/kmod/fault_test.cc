/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every call of the module, each allocation and each copy from and to user
 * memory in it failing in turn: the call fails with an errno that says so and
 * leaves nothing behind, and works the next time. What leaks shows in the
 * kernel's kmemleak, which the harness reads at the end.
 */
#include "vm/kmod/device.h"
#include "vm/kmod/faults.h"

#include <dirent.h>
#include <optional>
#include <vector>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

const std::set<int> no_memory = {ENOMEM, EFAULT};

/* Without the module; each test loads it. */
class Fault : public testing::Test {
protected:
	void SetUp() override
	{
		if (!Faults::are_possible())
			GTEST_SKIP() << "this kernel has no fault injection";
		faults.emplace();
	}

	/* Says how many there were: none means that nothing was tested. */
	void sweep(
		const char *what, const std::set<int> &errors, const std::function<int()> &call,
		const std::function<void()> &undo, const std::function<void()> &left = [] {})
	{
		SCOPED_TRACE(what);
		unsigned nr = faults->sweep(errors, call, undo, left);

		EXPECT_GT(nr, 0u);
		printf("# %s: %u faults\n", what, nr);
		fflush(stdout);
	}

	std::optional<Faults> faults;
};

std::string all_of(const char *path)
{
	std::ifstream file(path);

	return {std::istreambuf_iterator<char>(file), {}};
}

void nothing_is_loaded()
{
	EXPECT_NE(access("/sys/module/cxl_kv", F_OK), 0);
	EXPECT_NE(access("/dev/cxl_kv", F_OK), 0);
	EXPECT_EQ(all_of("/proc/iomem").find("cxl_kv"), std::string::npos);
}

/* As the kernel's loader has it in memory: only what the module itself does is to fail. */
class Insmod : public Fault {
protected:
	int insmod(const std::string &parameters) const
	{
		return syscall(SYS_finit_module, file_.get(), parameters.c_str(), 0) ? errno : 0;
	}

private:
	Fd file_{open(module_file().c_str(), O_RDONLY | O_CLOEXEC)};
};

/* In a guest whose second node is there from the start, that is adopted. */
TEST_F(Insmod, WithWhatItAdopts)
{
	faults->only_below("do_init_module");
	sweep(
		"insmod", no_memory, [&] { return insmod(""); },
		[] { EXPECT_EQ(unload_module(), 0); }, nothing_is_loaded);
}

class HotAdd : public Insmod {
protected:
	void SetUp() override
	{
		const char *base = getenv("KV_NODE1_BASE");

		Insmod::SetUp();
		if (IsSkipped())
			return;
		if (!base || access("/sys/devices/system/node/node1", F_OK) == 0)
			GTEST_SKIP() << "no reserved range in this guest";
		parameters_ = std::string("node=1 size=256M base=") + base;
		std::ofstream("/sys/devices/system/memory/auto_online_blocks") << "online_movable";
	}

	int add() const { return insmod(parameters_); }
	static int remove_node()
	{
		Fd verb(open("/sys/class/cxl_kv/node1/remove", O_WRONLY | O_CLOEXEC));

		return write(verb.get(), "1", 1) == 1 ? 0 : errno;
	}
	static void node_is_gone()
	{
		nothing_is_loaded();
		EXPECT_NE(access("/sys/devices/system/node/node1", F_OK), 0);
	}
	static void remove_all()
	{
		EXPECT_EQ(remove_node(), 0);
		EXPECT_EQ(unload_module(), 0);
		node_is_gone();
	}

private:
	std::string parameters_;
};

/*
 * The kernel's own adding of memory warns of a failure, and holds a node's directory
 * in sysfs for certain, by BUG_ON. And it takes a resource that it has no memory for
 * as one that is taken.
 */
TEST_F(HotAdd, OfMemory)
{
	faults->only_below("do_init_module");
	faults->never_below("add_memory_resource");
	sweep(
		"hot-add", {ENOMEM, EEXIST}, [&] { return add(); }, remove_all, node_is_gone);
}

/* What it undoes itself, late in adding it. */
TEST_F(HotAdd, OfMemoryThatTheKernelGivesUp)
{
	faults->only_below("create_memory_block_devices");
	sweep(
		"memory blocks", no_memory, [&] { return add(); }, remove_all, node_is_gone);
}

TEST_F(HotAdd, AndRemoval)
{
	ASSERT_EQ(add(), 0);
	Fd verb(open("/sys/class/cxl_kv/node1/remove", O_WRONLY | O_CLOEXEC));
	auto remove = [&] { return write(verb.get(), "1", 1) == 1 ? 0 : errno; };

	sweep("remove", {ENOMEM, EFAULT, EBUSY}, remove, [&] {
		verb.reset();
		EXPECT_EQ(unload_module(), 0);
		node_is_gone();
		if (HasFailure() || access("/dev/cxl_kv", F_OK) == 0)
			return;
		EXPECT_EQ(add(), 0);
		verb.reset(open("/sys/class/cxl_kv/node1/remove", O_WRONLY | O_CLOEXEC));
	});
	verb.reset();
	remove_all();
}

/* With the module loaded, a manager and a client. */
class Calls : public Fault {
protected:
	void SetUp() override
	{
		Fault::SetUp();
		if (IsSkipped())
			return;
		ASSERT_EQ(load_module(""), 0);
		parts.emplace();
		client.emplace(open_device());
		manager.emplace(open_device());
	}
	void TearDown() override
	{
		parts.reset();
		client.reset();
		manager.reset();
		if (!IsSkipped()) {
			EXPECT_EQ(unload_module(), 0);
		}
	}

	[[nodiscard]] uint32_t nr_arenas() const
	{
		cxl_kv_info info{};

		info.size = sizeof(info);
		EXPECT_EQ(call(*client, CXL_KV_IOC_INFO, &info), 0);
		return info.nr_arenas;
	}
	void add_arena()
	{
		ASSERT_EQ(parts->register_with_ring(*client, 64, &arena, &ring_offset), 0);
	}

	std::optional<ArenaParts> parts;
	std::optional<Fd> client, manager;
	uint32_t arena = 0;
	uint64_t ring_offset = 0;
};

TEST_F(Calls, OpenAndAttach)
{
	Fd another;

	sweep(
		"open", {ENOMEM, ENFILE, EFAULT},
		[&] {
			another.reset(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));
			return another ? 0 : errno;
		},
		[&] { another.reset(); });
	sweep(
		"manager attach", no_memory, [&] { return attach(*manager); },
		[&] { manager.emplace(open_device()); });
}

TEST_F(Calls, RegisterAndUnregister)
{
	const std::vector<uint32_t> windows(parts->geometry.nr_layers, 64);
	cxl_kv_arena_register arg;

	ASSERT_EQ(attach(*manager), 0);
	sweep(
		"register", no_memory,
		[&] {
			arg = parts->argument();
			arg.ring_entries = 64;
			arg.nr_layer_windows = parts->geometry.nr_layers;
			arg.layer_windows = reinterpret_cast<uintptr_t>(windows.data());
			return call(*client, CXL_KV_IOC_ARENA_REGISTER, &arg);
		},
		[&] { EXPECT_EQ(unregister(*client, arg.arena), 0); },
		[&] { EXPECT_EQ(nr_arenas(), 0u); });
	add_arena();
	sweep(
		"unregister", no_memory, [&] { return unregister(*client, arena); },
		[&] { add_arena(); });
}

TEST_F(Calls, RingAndHints)
{
	std::vector<cxl_kv_hint> hints(100);
	cxl_kv_hints_read read{};
	void *ring = nullptr;

	add_arena();
	sweep(
		"mmap of a ring", no_memory,
		[&] {
			ring = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED,
				    client->get(), static_cast<off_t>(ring_offset));
			return ring == MAP_FAILED ? errno : 0;
		},
		[&] { munmap(ring, 8192); });

	for (cxl_kv_hint &hint : hints)
		hint.kind = CXL_KV_HINT_WAKE;
	sweep(
		"hint", no_memory,
		[&] {
			cxl_kv_hints arg{sizeof(arg),
					 0,
					 arena,
					 uint32_t(hints.size()),
					 reinterpret_cast<uintptr_t>(hints.data()),
					 0,
					 0};
			return call(*client, CXL_KV_IOC_HINT, &arg);
		},
		[] {});
	ASSERT_EQ(attach(*manager), 0);
	sweep(
		"hints read", no_memory,
		[&] {
			read = {};
			read.size = sizeof(read);
			read.arena = arena;
			read.nr = uint32_t(hints.size());
			read.hints = reinterpret_cast<uintptr_t>(hints.data());
			return call(*manager, CXL_KV_IOC_HINTS_READ, &read);
		},
		[] {});
}

/* An event that could not be handed over comes again. */
TEST_F(Calls, Events)
{
	uint32_t kind = 0, number = 0;

	ASSERT_EQ(attach(*manager), 0);
	add_arena();
	sweep(
		"next event", no_memory, [&] { return next_event(*manager, &kind, &number); },
		[&] {
			EXPECT_EQ(kind, uint32_t(CXL_KV_EVENT_ARENA_ADDED));
			EXPECT_EQ(number, arena);
			EXPECT_EQ(unregister(*client, arena), 0);
			EXPECT_EQ(next_event(*manager, &kind, &number), 0);
			EXPECT_EQ(kind, uint32_t(CXL_KV_EVENT_ARENA_REMOVED));
			add_arena();
		});
}

size_t nr_open_files()
{
	size_t nr = 0;
	DIR *files = opendir("/proc/self/fd");

	while (readdir(files))
		nr++;
	closedir(files);
	return nr;
}

TEST_F(Calls, OfTheManager)
{
	cxl_kv_head head{};
	cxl_kv_arena_get get;
	size_t nr_files = nr_open_files();

	add_arena();
	ASSERT_EQ(attach(*manager), 0);
	sweep(
		"arena get", no_memory,
		[&] {
			get = {};
			get.size = sizeof(get);
			get.arena = arena;
			return call(*manager, CXL_KV_IOC_ARENA_GET, &get);
		},
		[&] {
			for (int fd : {get.memory_fd, get.uffd, get.table_fd})
				EXPECT_EQ(close(fd), 0);
		},
		[&] { EXPECT_EQ(nr_open_files(), nr_files); });
	sweep(
		"set key", no_memory,
		[&] {
			cxl_kv_arena_set_key arg{sizeof(arg), 0, arena, 0, 1};
			return call(*manager, CXL_KV_IOC_ARENA_SET_KEY, &arg);
		},
		[] {});
	sweep(
		"heads read", no_memory,
		[&] {
			cxl_kv_state_read arg{
				sizeof(arg), 0, arena, 0, 1, 0, reinterpret_cast<uintptr_t>(&head)};
			return call(*manager, CXL_KV_IOC_HEADS_READ, &arg);
		},
		[] {});
	for (uint32_t way : {CXL_KV_SAMPLE_ACCESSED, CXL_KV_SAMPLE_REFAULT}) {
		memset(parts->map.data(), 1, parts->map.size());
		sweep(
			"sample start", no_memory,
			[&] {
				cxl_kv_sample_set arg{sizeof(arg), 0, arena, way, 10, 500};
				return call(*manager, CXL_KV_IOC_SAMPLE_SET, &arg);
			},
			[&] {
				cxl_kv_sample_set off{sizeof(off), 0, arena, 0, 0, 0};
				EXPECT_EQ(call(*manager, CXL_KV_IOC_SAMPLE_SET, &off), 0);
			});
	}
}

TEST_F(Calls, ShowOfBlocks)
{
	char text[32];
	Fd file;

	add_arena();
	sweep(
		"blocks in sysfs", no_memory,
		[&] {
			std::string path = "/sys/class/cxl_kv/arena" + std::to_string(arena);
			file.reset(open((path + "/blocks/empty").c_str(), O_RDONLY | O_CLOEXEC));
			return file && read(file.get(), text, sizeof(text)) > 0 ? 0 : errno;
		},
		[] {});
}

} // namespace
