/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/object_lanes.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace cxlkv {

namespace {

/* Who sleeps until the event comes looks once before, and once after. */
constexpr uint32_t kPollsAwake = 4;

/* Ordinary pages of a memfd: reading and writing them never waits for a device. */
Result<> check_file(int fd, uint64_t bytes, int seals, const char *what)
{
	struct stat st;
	struct statfs fs;
	int has = fcntl(fd, F_GET_SEALS);

	if (has < 0 || fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC || fstat(fd, &st))
		return error(EINVAL, fmt::format("{}: not a memfd of ordinary pages", what));
	if ((has & seals) != seals)
		return error(EPERM, fmt::format("{}: must be sealed against shrinking", what));
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return error(EPERM, fmt::format("{}: not open for reading and writing", what));
	if (static_cast<uint64_t>(st.st_size) < bytes)
		return error(EINVAL,
			     fmt::format("{}: {} bytes, must be {}", what, st.st_size, bytes));
	return ok();
}

bool is_eventfd(int fd)
{
	char target[64] = "";
	std::string link = fmt::format("/proc/self/fd/{}", fd);

	return readlink(link.c_str(), target, sizeof(target) - 1) > 0 &&
	       std::string(target) == "anon_inode:[eventfd]";
}

} // namespace

Result<std::unique_ptr<ObjectLanes>> ObjectLanes::create(std::deque<Fd> files)
{
	if (files.size() != CXL_KV_NR_LANE_FILES)
		return cxlkv::error(EINVAL,
				    "rings need five files: memory, doorbell, three events");
	/* Without the seal the client could truncate it under our mapping. */
	if (auto good = check_file(files[CXL_KV_LANES_FILE].get(), CXL_KV_LANES_BYTES,
				   F_SEAL_SHRINK, "rings");
	    !good)
		return good.error();
	std::unique_ptr<ObjectLanes> lanes(new ObjectLanes);
	for (size_t i = CXL_KV_DOORBELL_FILE; i < files.size(); i++)
		if (!is_eventfd(files[i].get()))
			return cxlkv::error(EINVAL, "rings: a file is not an eventfd");
	for (size_t lane = 0; lane < CXL_KV_NR_LANES; lane++) {
		auto event = EventSignal::create(files[CXL_KV_EVENTS_FILE + lane].get());
		if (!event)
			return event.error();
		lanes->events_.push_back(std::move(*event));
	}
	void *at = mmap(nullptr, CXL_KV_LANES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			files[CXL_KV_LANES_FILE].get(), 0);
	if (at == MAP_FAILED)
		return sys_error("map rings");
	lanes->mapping_ = Mapping(at, CXL_KV_LANES_BYTES);
	lanes->lanes_ = static_cast<cxl_kv_lane *>(at);
	lanes->doorbell_ = std::move(files[CXL_KV_DOORBELL_FILE]);
	return lanes;
}

bool ObjectLanes::waiting() const
{
	for (size_t lane = 0; lane < own_.size(); lane++)
		if (__atomic_load_n(&lanes_[lane].item_head, __ATOMIC_SEQ_CST) !=
		    own_[lane].item_tail)
			return true;
	return false;
}

bool ObjectLanes::client_looks() const
{
	return std::any_of(own_.begin(), own_.end(),
			   [](const Counters &lane) { return lane.polled; });
}

bool ObjectLanes::set_looking(bool looking)
{
	if (std::exchange(looking_, looking) == looking)
		return false;
	for (size_t lane = 0; lane < own_.size(); lane++)
		__atomic_store_n(&lanes_[lane].manager_looks, looking, __ATOMIC_SEQ_CST);
	return true;
}

ObjectLanes::Lookups ObjectLanes::lookups() const
{
	Lookups most;

	for (size_t lane = 0; lane < own_.size(); lane++) {
		auto read = [](const uint64_t &at) {
			return __atomic_load_n(&at, __ATOMIC_RELAXED);
		};
		most.nr = std::max(most.nr, read(lanes_[lane].nr_lookups));
		most.nr_hits = std::max(most.nr_hits, read(lanes_[lane].nr_hits));
	}
	return most;
}

bool ObjectLanes::take(cxl_kv_lane_class lane, size_t max, std::vector<cxl_kv_item> *items)
{
	cxl_kv_lane &shared = lanes_[lane];
	uint32_t &tail = own_[lane].item_tail;
	uint32_t head = __atomic_load_n(&shared.item_head, __ATOMIC_ACQUIRE);

	if (head - tail > CXL_KV_LANE_ENTRIES)
		return false;
	for (; tail != head && max; tail++, max--)
		items->push_back(shared.items[tail % CXL_KV_LANE_ENTRIES]);
	__atomic_store_n(&shared.item_tail, tail, __ATOMIC_RELEASE);
	return true;
}

bool ObjectLanes::complete(cxl_kv_lane_class lane, uint32_t id, int result)
{
	cxl_kv_lane &shared = lanes_[lane];
	uint32_t &head = own_[lane].result_head;

	if (head - __atomic_load_n(&shared.result_tail, __ATOMIC_ACQUIRE) >= CXL_KV_LANE_ENTRIES)
		return false;
	shared.results[head % CXL_KV_LANE_ENTRIES] = {id, result};
	__atomic_store_n(&shared.result_head, ++head, __ATOMIC_RELEASE);
	own_[lane].news = true;
	return true;
}

void ObjectLanes::notify()
{
	for (size_t lane = 0; lane < own_.size(); lane++) {
		if (!std::exchange(own_[lane].news, false))
			continue;
		events_[lane].signal();
		uint32_t polls = __atomic_load_n(&lanes_[lane].nr_polls, __ATOMIC_RELAXED);
		own_[lane].polled = polls - std::exchange(own_[lane].nr_polls, polls) > kPollsAwake;
	}
}

Result<std::unique_ptr<ObjectBuffer>> ObjectBuffer::create(Fd file, uint64_t bytes)
{
	if (auto good = check_file(file.get(), bytes, 0, "buffer"); !good)
		return good.error();
	return std::unique_ptr<ObjectBuffer>(new ObjectBuffer(std::move(file), bytes));
}

} // namespace cxlkv
