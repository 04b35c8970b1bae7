/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/kmod_device.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>

namespace cxlkv {

namespace {

constexpr const char *kDevice = "/dev/cxl_kv";

template <typename T> T sized()
{
	T args{};
	args.size = sizeof(args);
	return args;
}

} // namespace

Result<std::unique_ptr<KmodDevice>> KmodDevice::attach()
{
	Fd device(open(kDevice, O_RDWR | O_CLOEXEC));
	if (!device)
		return sys_error(kDevice);
	auto info = sized<cxl_kv_info>();
	if (ioctl(device.get(), CXL_KV_IOC_INFO, &info))
		return sys_error(fmt::format("{}: info", kDevice));
	if (info.abi_version != CXL_KV_ABI_VERSION)
		return error(EPROTO, fmt::format("the module speaks version {}, this daemon {}: install both from one release",
						 info.abi_version, CXL_KV_ABI_VERSION));
	auto args = sized<cxl_kv_attach_manager>();
	if (ioctl(device.get(), CXL_KV_IOC_ATTACH_MANAGER, &args)) {
		if (errno == EBUSY)
			return error(EBUSY, "another manager is attached to the module");
		return sys_error("attach to the module as its manager");
	}
	return std::unique_ptr<KmodDevice>(new KmodDevice(std::move(device)));
}

std::optional<KmodDevice::Event> KmodDevice::next_event()
{
	auto args = sized<cxl_kv_next_event>();

	if (ioctl(device_.get(), CXL_KV_IOC_NEXT_EVENT, &args))
		return {};
	return Event{args.kind == CXL_KV_EVENT_ARENA_ADDED, args.arena};
}

Result<KmodDevice::ModuleArena> KmodDevice::get(uint64_t module_id)
{
	std::vector<uint32_t> windows(CXL_KV_MAX_LAYERS);
	auto args = sized<cxl_kv_arena_get>();
	args.arena = static_cast<uint32_t>(module_id);
	args.nr_layer_windows = static_cast<uint32_t>(windows.size());
	args.layer_windows = reinterpret_cast<uint64_t>(windows.data());
	if (ioctl(device_.get(), CXL_KV_IOC_ARENA_GET, &args))
		return sys_error(fmt::format("arena {} of the module", module_id));

	ModuleArena arena;
	arena.files.memory = Fd(args.memory_fd);
	arena.files.uffd = Fd(args.uffd);
	arena.files.table = Fd(args.table_fd);
	static_cast<cxl_kv_geometry &>(arena.geometry) = args.geometry;
	arena.geometry.layer_window.assign(args.geometry.nr_layers, 0);
	std::copy_n(windows.begin(), std::min<size_t>(args.nr_layer_windows, args.geometry.nr_layers),
		    arena.geometry.layer_window.begin());
	arena.pid = static_cast<pid_t>(args.pid);
	arena.client_base = args.base;
	arena.key = args.key;
	arena.ring_entries = args.ring_entries;
	return arena;
}

Result<> KmodDevice::set_key(uint64_t module_id, uint64_t key)
{
	auto args = sized<cxl_kv_arena_set_key>();

	args.arena = static_cast<uint32_t>(module_id);
	args.key = key;
	if (ioctl(device_.get(), CXL_KV_IOC_ARENA_SET_KEY, &args))
		return sys_error(fmt::format("key of arena {}", module_id));
	return ok();
}

} // namespace cxlkv
