/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/pmu.h"

#include <fstream>
#include <linux/perf_event.h>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

namespace cxlkv {

namespace {

/* One sample in so many accesses (PEBS) or operations (IBS): some thousand a second on a busy core.
 */
constexpr uint64_t kPeriod = 200003;

std::string read_line(const std::string &path)
{
	std::ifstream in(path);
	std::string line;
	std::getline(in, line);
	return line;
}

/* "event=0xcd,umask=0x1,ldlat=3" of sysfs; ldlat has its place in config1. */
perf_event_attr pebs_attr(const std::string &description)
{
	perf_event_attr attr{};
	auto field = [&](const char *name) -> uint64_t {
		size_t at = description.find(name);
		return at == std::string::npos
			       ? 0
			       : strtoull(description.c_str() + at + strlen(name), nullptr, 0);
	};
	attr.config = field("event=") | field("umask=") << 8;
	attr.config1 = field("ldlat=");
	attr.precise_ip = 2;
	return attr;
}

std::optional<perf_event_attr> memory_attr()
{
	const std::string devices = "/sys/bus/event_source/devices/";
	std::string type;
	perf_event_attr attr{};

	if (type = read_line(devices + "ibs_op/type"); !type.empty()) {
		attr.type = static_cast<uint32_t>(std::stoul(type));
	} else if (std::string loads = read_line(devices + "cpu/events/mem-loads");
		   !loads.empty()) {
		attr = pebs_attr(loads);
		attr.type = PERF_TYPE_RAW;
	} else {
		return {};
	}
	attr.size = sizeof(attr);
	attr.sample_period = kPeriod;
	attr.sample_type = PERF_SAMPLE_ADDR;
	attr.exclude_hv = 1;
	return attr;
}

} // namespace

Result<PmuEvent> PmuEvent::open(const perf_event_attr &attr, int cpu)
{
	Fd fd(static_cast<int>(
		syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)));
	if (!fd)
		return sys_error("perf_event_open on CPU " + std::to_string(cpu));
	/* A page about the ring, and one of it. */
	const auto bytes = 2 * static_cast<size_t>(sysconf(_SC_PAGESIZE));
	void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
	if (at == MAP_FAILED)
		return sys_error("ring of the perf event on CPU " + std::to_string(cpu));
	return PmuEvent(std::move(fd), Mapping(at, bytes));
}

uint64_t PmuEvent::nr_throttled() const
{
	const size_t bytes = ring_.size() / 2;
	auto *about = reinterpret_cast<perf_event_mmap_page *>(ring_.data());
	const std::byte *ring = ring_.data() + bytes;
	const uint64_t head = __atomic_load_n(&about->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = about->data_tail;

	while (tail < head) {
		/* Records are multiples of 8 bytes, so that no header lies across the end. */
		const auto *record =
			reinterpret_cast<const perf_event_header *>(ring + tail % bytes);
		nr_throttled_ += record->type == PERF_RECORD_THROTTLE;
		tail += record->size;
	}
	__atomic_store_n(&about->data_tail, tail, __ATOMIC_RELEASE);
	return nr_throttled_;
}

Result<std::vector<PmuEvent>> open_memory_samples()
{
	auto attr = memory_attr();
	std::vector<PmuEvent> events;

	if (!attr)
		return error(ENOENT, "no IBS or PEBS on this machine (a VM usually has none)");
	for (int cpu = 0; cpu < get_nprocs(); cpu++) {
		auto event = PmuEvent::open(*attr, cpu);
		if (!event)
			return event.error();
		events.push_back(std::move(*event));
	}
	return events;
}

} // namespace cxlkv
