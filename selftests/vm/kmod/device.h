/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * For tests of /dev/cxl_kv in the guest: the module loaded for the length of
 * the program, open files, and arenas with all that belongs to one.
 */
#pragma once

#include "base/fd.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <linux/cxl_kv.h>
#include <linux/userfaultfd.h>
#include <memory>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cxlkv::test {

inline std::string module_file()
{
	utsname uts;

	uname(&uts);
	return std::string("build/kmod/") + uts.release + "/cxl_kv.ko";
}

/* 0 or errno, like all calls here. */
inline int load_module(const char *parameters)
{
	Fd file(open(module_file().c_str(), O_RDONLY | O_CLOEXEC));

	return syscall(SYS_finit_module, file.get(), parameters, 0) ? errno : 0;
}

inline int unload_module()
{
	return syscall(SYS_delete_module, "cxl_kv", O_NONBLOCK) ? errno : 0;
}

/* Once the last processes that used it are gone. */
inline int unload_module_soon()
{
	int error = EAGAIN;

	for (int i = 0; i < 200 && error == EAGAIN; i++) {
		error = unload_module();
		if (error)
			usleep(50 * 1000);
	}
	return error;
}

/* Loads the module; at the end nothing may be left that keeps it. */
class ModuleLoaded : public testing::Environment {
	void SetUp() override { ASSERT_EQ(load_module(""), 0) << module_file(); }
	void TearDown() override { EXPECT_EQ(unload_module_soon(), 0); }
};

inline Fd open_device()
{
	Fd fd(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));

	EXPECT_TRUE(fd) << strerror(errno);
	return fd;
}

inline int call(const Fd &fd, unsigned long request, void *argument)
{
	return ioctl(fd.get(), request, argument) ? errno : 0;
}

inline int attach(const Fd &fd)
{
	cxl_kv_attach_manager arg{sizeof(arg), 0};

	return call(fd, CXL_KV_IOC_ATTACH_MANAGER, &arg);
}

/* 2 slots of 2 x 2 heads, 16 blocks a head, a page a block: 128 blocks, 512 KiB. */
inline cxl_kv_geometry small_geometry()
{
	return {.nr_slots = 2,
		.nr_layers = 2,
		.nr_kv_heads = 2,
		.head_dim = 64,
		.elem_bytes = 2,
		.tokens_per_block = 16,
		.tokens_per_slot = 256,
		.block_bytes = 4096};
}

inline uint32_t nr_blocks(const cxl_kv_geometry &g)
{
	return g.nr_slots * g.nr_layers * g.nr_kv_heads * (g.tokens_per_slot / g.tokens_per_block);
}

inline Fd sealed_memfd(uint64_t bytes)
{
	Fd fd(memfd_create("kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));

	EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
	EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	return fd;
}

/* All that a client registers, and the argument to do it with. */
struct ArenaParts {
	explicit ArenaParts(const cxl_kv_geometry &shape = small_geometry())
	    : geometry(shape), bytes(uint64_t{nr_blocks(shape)} * shape.block_bytes),
	      memory(sealed_memfd(bytes)), table(sealed_memfd(uint64_t{nr_blocks(shape)} * 8)),
	      uffd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))),
	      map(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0), bytes)
	{
	}

	[[nodiscard]] cxl_kv_arena_register argument() const
	{
		cxl_kv_arena_register arg{};

		arg.size = sizeof(arg);
		arg.geometry = geometry;
		arg.base = reinterpret_cast<uintptr_t>(map.data());
		arg.memory_fd = memory.get();
		arg.uffd = uffd.get();
		arg.table_fd = table.get();
		return arg;
	}

	/* With a ring of @entries; 0 or errno. */
	int register_with_ring(const Fd &device, uint32_t entries, uint32_t *number,
			       uint64_t *offset) const
	{
		cxl_kv_arena_register arg = argument();

		arg.ring_entries = entries;
		int error = call(device, CXL_KV_IOC_ARENA_REGISTER, &arg);
		*number = arg.arena;
		*offset = arg.ring_offset;
		return error;
	}

	/* 0 or errno; @number gets the arena's. */
	int register_on(const Fd &device, uint32_t *number) const
	{
		cxl_kv_arena_register arg = argument();
		int error = call(device, CXL_KV_IOC_ARENA_REGISTER, &arg);

		*number = arg.arena;
		return error;
	}

	cxl_kv_geometry geometry;
	uint64_t bytes;
	Fd memory, table, uffd;
	Mapping map;
};

inline int unregister(const Fd &device, uint32_t number)
{
	cxl_kv_arena_unregister arg{sizeof(arg), 0, number, 0};

	return call(device, CXL_KV_IOC_ARENA_UNREGISTER, &arg);
}

inline int next_event(const Fd &device, uint32_t *kind, uint32_t *arena)
{
	cxl_kv_next_event arg{sizeof(arg), 0, 0, 0};
	int error = call(device, CXL_KV_IOC_NEXT_EVENT, &arg);

	*kind = arg.kind;
	*arena = arg.arena;
	return error;
}

/* Runs in a child; what it returns is the result here. A child that dies gives -1. */
inline int in_child(const std::function<int()> &body)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(body());
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

inline std::string read_file(const std::string &path)
{
	std::ifstream file(path);
	std::string value;

	std::getline(file, value);
	return value;
}

} // namespace cxlkv::test
