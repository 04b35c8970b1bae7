/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/kmod_device.h"

#include "sys/host.h"

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
		return error(EPROTO, fmt::format("the module speaks version {}, this daemon {}: "
						 "install both from one release",
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
	std::copy_n(windows.begin(),
		    std::min<size_t>(args.nr_layer_windows, args.geometry.nr_layers),
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

std::vector<cxl_kv_hint> KmodDevice::read_hints(uint64_t module_id, size_t max)
{
	std::vector<cxl_kv_hint> hints;

	while (hints.size() < max) {
		const size_t had = hints.size(),
			     room = std::min<size_t>(max - had, CXL_KV_MAX_HINTS);
		hints.resize(had + room);
		auto args = sized<cxl_kv_hints_read>();
		args.arena = static_cast<uint32_t>(module_id);
		args.nr = static_cast<uint32_t>(room);
		args.hints = reinterpret_cast<uint64_t>(&hints[had]);
		/* An error: the client is gone, the registry will hear of it. */
		const size_t got = ioctl(device_.get(), CXL_KV_IOC_HINTS_READ, &args) ? 0 : args.nr;
		hints.resize(had + got);
		if (got < room)
			break;
	}
	return hints;
}

/* Entries of one kind of state, at most what geometry says there are. */
template <typename T>
std::vector<T> KmodDevice::read_entries(unsigned long request, uint64_t module_id, uint32_t nr)
{
	std::vector<T> entries(nr);
	auto args = sized<cxl_kv_state_read>();

	args.arena = static_cast<uint32_t>(module_id);
	args.nr = nr;
	args.out = reinterpret_cast<uint64_t>(entries.data());
	entries.resize(ioctl(device_.get(), request, &args) ? 0 : std::min(args.nr, nr));
	return entries;
}

std::vector<cxl_kv_hint> KmodDevice::read_state(uint64_t module_id, const Geometry &geometry)
{
	const auto slots =
		read_entries<cxl_kv_slot>(CXL_KV_IOC_SLOTS_READ, module_id, geometry.nr_slots);
	const auto heads =
		read_entries<cxl_kv_head>(CXL_KV_IOC_HEADS_READ, module_id, geometry.nr_heads());
	std::vector<cxl_kv_hint> hints;
	auto add = [&](cxl_kv_hint_kind kind, uint32_t slot) -> cxl_kv_hint & {
		hints.push_back({});
		hints.back().kind = static_cast<uint8_t>(kind);
		hints.back().slot = slot;
		return hints.back();
	};

	for (uint32_t slot = 0; slot < slots.size(); slot++) {
		if (!slots[slot].nr_hints)
			continue;
		add(CXL_KV_HINT_POSITION, slot).position =
			std::min(slots[slot].position, geometry.tokens_per_slot);
		if (slots[slot].phase != CXL_KV_PHASE_UNKNOWN)
			add(CXL_KV_HINT_PHASE, slot).position = slots[slot].phase;
		for (uint32_t head = 0; head < heads.size(); head++) {
			if (!heads[head].score)
				continue;
			cxl_kv_hint &score = add(CXL_KV_HINT_SCORE, slot);
			score.head = head;
			score.nr_blocks = geometry.blocks_per_head();
			score.score = heads[head].score;
		}
		if (slots[slot].parked)
			add(CXL_KV_HINT_PARK, slot);
	}
	return hints;
}

Result<> KmodDevice::set_sampling(uint64_t module_id, const Sampling &sampling)
{
	auto args = sized<cxl_kv_sample_set>();

	args.arena = static_cast<uint32_t>(module_id);
	args.way = sampling.way;
	if (sampling.way != CXL_KV_SAMPLE_OFF) {
		args.flags = sampling.flush_tlb && sampling.way == CXL_KV_SAMPLE_ACCESSED
				     ? CXL_KV_SAMPLE_FLUSH_TLB
				     : 0;
		args.interval_ms = sampling.interval_ms;
		args.budget_permil = sampling.budget_permil;
	}
	if (ioctl(device_.get(), CXL_KV_IOC_SAMPLE_SET, &args))
		return sys_error(fmt::format("sampling of arena {}", module_id));
	return ok();
}

KmodDevice::SamplingCost KmodDevice::sampling_cost(uint64_t module_id) const
{
	const std::string folder = fmt::format("/sys/class/cxl_kv/arena{}/sample/", module_id);
	const Host host;

	return {host.number(folder + "spent_ns").value_or(0),
		host.number(folder + "passes").value_or(0)};
}

} // namespace cxlkv
