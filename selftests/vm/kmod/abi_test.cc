/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The rules that hold for every ioctl of /dev/cxl_kv: sizes, tails, flags,
 * reserved fields, pointers, files and owners, each with its errno.
 */
#include "vm/kmod/device.h"

#include <vector>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

[[maybe_unused]] auto *const environment = testing::AddGlobalTestEnvironment(new ModuleLoaded);

/* A client with an arena that the manager has not been told of yet, and room for another. */
struct World {
	World()
	{
		EXPECT_EQ(parts.register_on(client, &arena), 0);
		EXPECT_EQ(attach(manager), 0);
	}

	ArenaParts parts, more_parts;
	Fd client = open_device(), manager = open_device(), other = open_device();
	uint32_t arena = 0;
};

using Bytes = std::vector<uint8_t>;

enum class Who { Anyone, Client, Manager };

/* How to make one valid call of an ioctl. */
struct Command {
	const char *name;
	unsigned long request;
	Who who;
	size_t reserved; /* offset of a field that must be zero, 0 = none */
	std::function<Bytes(World &)> argument;
};

template <typename T> Bytes bytes_of(T argument)
{
	Bytes bytes(sizeof(T));

	argument.size = sizeof(T);
	memcpy(bytes.data(), &argument, sizeof(T));
	return bytes;
}

const Command commands[] = {
	{"Info", CXL_KV_IOC_INFO, Who::Anyone, 0, [](World &) { return bytes_of(cxl_kv_info{}); }},
	{"AttachManager", CXL_KV_IOC_ATTACH_MANAGER, Who::Anyone, 0,
	 [](World &world) {
		 world.manager.reset(); /* the seat is free */
		 return bytes_of(cxl_kv_attach_manager{});
	 }},
	{"ArenaRegister", CXL_KV_IOC_ARENA_REGISTER, Who::Anyone, 0,
	 [](World &world) { return bytes_of(world.more_parts.argument()); }},
	{"ArenaUnregister", CXL_KV_IOC_ARENA_UNREGISTER, Who::Client,
	 offsetof(cxl_kv_arena_unregister, reserved),
	 [](World &world) {
		 cxl_kv_arena_unregister arg{};
		 arg.arena = world.arena;
		 return bytes_of(arg);
	 }},
	{"NextEvent", CXL_KV_IOC_NEXT_EVENT, Who::Manager, 0,
	 [](World &) { return bytes_of(cxl_kv_next_event{}); }},
	{"ArenaGet", CXL_KV_IOC_ARENA_GET, Who::Manager, offsetof(cxl_kv_arena_get, reserved),
	 [](World &world) {
		 cxl_kv_arena_get arg{};
		 arg.arena = world.arena;
		 return bytes_of(arg);
	 }},
	{"ArenaSetKey", CXL_KV_IOC_ARENA_SET_KEY, Who::Manager,
	 offsetof(cxl_kv_arena_set_key, reserved),
	 [](World &world) {
		 cxl_kv_arena_set_key arg{};
		 arg.arena = world.arena;
		 return bytes_of(arg);
	 }},
	{"Hint", CXL_KV_IOC_HINT, Who::Client, offsetof(cxl_kv_hints, reserved),
	 [](World &world) {
		 cxl_kv_hints arg{};
		 arg.arena = world.arena;
		 return bytes_of(arg);
	 }},
	{"HintsRead", CXL_KV_IOC_HINTS_READ, Who::Manager, offsetof(cxl_kv_hints_read, reserved),
	 [](World &world) {
		 cxl_kv_hints_read arg{};
		 arg.arena = world.arena;
		 return bytes_of(arg);
	 }},
	{"HeadsRead", CXL_KV_IOC_HEADS_READ, Who::Manager, offsetof(cxl_kv_state_read, reserved),
	 [](World &world) {
		 cxl_kv_state_read arg{};
		 arg.arena = world.arena;
		 return bytes_of(arg);
	 }},
	{"SlotsRead", CXL_KV_IOC_SLOTS_READ, Who::Manager, offsetof(cxl_kv_state_read, reserved),
	 [](World &world) {
		 cxl_kv_state_read arg{};
		 arg.arena = world.arena;
		 return bytes_of(arg);
	 }},
	{"SampleSet", CXL_KV_IOC_SAMPLE_SET, Who::Manager, 0,
	 [](World &world) {
		 cxl_kv_sample_set arg{};
		 arg.arena = world.arena;
		 return bytes_of(arg);
	 }},
};

void set_word(Bytes &argument, size_t offset, uint32_t value)
{
	memcpy(argument.data() + offset, &value, sizeof(value));
}

class EveryIoctl : public testing::TestWithParam<Command> {
protected:
	[[nodiscard]] const Fd &file() const
	{
		return GetParam().who == Who::Manager ? world.manager : world.client;
	}
	int send(Bytes bytes) { return send_on(file(), std::move(bytes)); }
	int send_on(const Fd &fd, Bytes bytes)
	{
		return call(fd, GetParam().request, bytes.data());
	}

	World world;
	Bytes arg = GetParam().argument(world);
};

TEST_P(EveryIoctl, AcceptsItsExactSize)
{
	EXPECT_EQ(send(arg), 0);
}

TEST_P(EveryIoctl, RefusesASmallerSize)
{
	for (uint32_t size : {0u, 4u, static_cast<uint32_t>(arg.size() - 1)}) {
		Bytes shorter = arg;
		set_word(shorter, 0, size);
		EXPECT_EQ(send(shorter), EINVAL) << size;
	}
}

TEST_P(EveryIoctl, AcceptsALongerZeroTail)
{
	arg.resize(arg.size() + 40);
	set_word(arg, 0, static_cast<uint32_t>(arg.size()));
	EXPECT_EQ(send(arg), 0);
}

TEST_P(EveryIoctl, RefusesALongerNonZeroTail)
{
	arg.resize(arg.size() + 40);
	arg.back() = 1;
	set_word(arg, 0, static_cast<uint32_t>(arg.size()));
	EXPECT_EQ(send(arg), E2BIG);
}

TEST_P(EveryIoctl, RefusesMoreThanAPage)
{
	arg.resize(1 << 20);
	set_word(arg, 0, static_cast<uint32_t>(arg.size()));
	EXPECT_EQ(send(arg), E2BIG);
}

TEST_P(EveryIoctl, RefusesUnknownFlags)
{
	set_word(arg, 4, 0x80000000);
	EXPECT_EQ(send(arg), EOPNOTSUPP);
}

TEST_P(EveryIoctl, RefusesReservedNonZero)
{
	if (!GetParam().reserved)
		GTEST_SKIP() << "has no reserved field";
	set_word(arg, GetParam().reserved, 1);
	EXPECT_EQ(send(arg), EOPNOTSUPP);
}

TEST_P(EveryIoctl, RefusesABadPointer)
{
	EXPECT_EQ(call(file(), GetParam().request, nullptr), EFAULT);
	EXPECT_EQ(call(file(), GetParam().request, reinterpret_cast<void *>(~0ul << 12)), EFAULT);

	/* The size can be read, the rest is not there. */
	Mapping two(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		    8192);
	ASSERT_EQ(mprotect(two.data() + 4096, 4096, PROT_NONE), 0);
	memcpy(two.data() + 4092, arg.data(), 4);
	EXPECT_EQ(call(file(), GetParam().request, two.data() + 4092), EFAULT);
}

TEST_P(EveryIoctl, IsUnknownToOtherFiles)
{
	EXPECT_EQ(send_on(Fd(open("/dev/null", O_RDWR | O_CLOEXEC)), arg), ENOTTY);
}

TEST_P(EveryIoctl, BelongsToItsOwner)
{
	switch (GetParam().who) {
	case Who::Anyone:
		GTEST_SKIP() << "anyone may";
	case Who::Manager:
		EXPECT_EQ(send_on(world.client, arg), EPERM);
		EXPECT_EQ(send_on(world.other, arg), EPERM);
		break;
	case Who::Client:
		EXPECT_EQ(send_on(world.other, arg), ENOENT);
		EXPECT_EQ(send_on(world.manager, arg), ENOENT);
		EXPECT_EQ(in_child([&] { return send_on(world.client, arg); }), EPERM);
		break;
	}
	EXPECT_EQ(send(arg), 0) << "and its owner still can";
}

INSTANTIATE_TEST_SUITE_P(Abi, EveryIoctl, testing::ValuesIn(commands),
			 [](const auto &one) { return std::string(one.param.name); });

TEST(UnknownIoctl, IsRefused)
{
	Fd device = open_device();
	cxl_kv_info info{};

	info.size = sizeof(info);
	EXPECT_EQ(call(device, _IO(CXL_KV_IOC_TYPE, 0xff), &info), ENOTTY);
	EXPECT_EQ(call(device, _IO(CXL_KV_IOC_TYPE + 1, CXL_KV_CMD_INFO), &info), ENOTTY);
	EXPECT_EQ(call(device, _IOWR(CXL_KV_IOC_TYPE, CXL_KV_CMD_INFO, cxl_kv_info), &info),
		  ENOTTY);
}

} // namespace
