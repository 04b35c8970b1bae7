// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The kernel module as keeper of an arena: it holds the files for whatever
 * manager comes next, and the hint ring, which it reads also while there is
 * none. Where the module or its manager is missing, the library keeps both.
 */
#include "client/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE "/dev/cxl_kv"

int kv_module_open(void)
{
	struct cxl_kv_info info = {.size = sizeof(info)};
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (!ioctl(fd, CXL_KV_IOC_INFO, &info) && info.abi_version == CXL_KV_ABI_VERSION &&
	    info.features & CXL_KV_FEATURE_HINTS)
		return fd;
	close(fd);
	return -1;
}

int kv_module_keep(struct cxl_kv_arena *arena)
{
	struct cxl_kv_arena_register reg = {
		.size = sizeof(reg),
		.geometry = arena->geometry,
		.base = (uintptr_t)arena->base,
		.memory_fd = arena->files[KV_MEMORY],
		.uffd = arena->files[KV_USERFAULT],
		.table_fd = arena->files[KV_TABLE],
		.ring_entries = arena->nr_ring_entries,
		.nr_layer_windows = arena->layer_window ? arena->geometry.nr_layers : 0,
		.layer_windows = (uintptr_t)arena->layer_window,
	};
	void *ring;

	if (ioctl(arena->kv->module, CXL_KV_IOC_ARENA_REGISTER, &reg))
		return -errno;
	arena->module_number = reg.arena;
	ring = mmap(NULL, kv_ring_bytes(arena), PROT_READ | PROT_WRITE, MAP_SHARED,
		    arena->kv->module, (off_t)reg.ring_offset);
	if (ring == MAP_FAILED)
		return -errno;
	arena->ring = ring;
	return 0;
}

void kv_module_let_go(const struct cxl_kv_arena *arena)
{
	struct cxl_kv_arena_unregister unreg = {
		.size = sizeof(unreg),
		.arena = arena->module_number,
	};

	if (arena->module_number)
		ioctl(arena->kv->module, CXL_KV_IOC_ARENA_UNREGISTER, &unreg);
}
