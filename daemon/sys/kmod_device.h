/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The manager's side of /dev/cxl_kv: the module keeps the clients' files and
 * hands them to us, also after we were killed and started again.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "sys/arena.h"

#include <memory>
#include <optional>
#include <vector>

namespace cxlkv {

class KmodDevice {
public:
	struct Event {
		bool added;         /* else removed */
		uint64_t module_id; /* the module's number of the arena */
	};
	struct ModuleArena {
		Geometry geometry;
		ArenaFiles files; /* without a ring */
		pid_t pid = 0;
		uint64_t client_base = 0;
		uint64_t key = 0; /* what set_key() stored, 0 at first */
		uint32_t ring_entries = 0;
	};

	/* ENOENT: the module is not loaded. EBUSY: another manager is attached. EPERM: CAP_SYS_NICE
	 * is missing. */
	static Result<std::unique_ptr<KmodDevice>> attach();

	/* Readable (poll) while events wait. */
	[[nodiscard]] int fd() const { return device_.get(); }
	std::optional<Event> next_event();
	/* The arena's files and shape. ENOENT: its client is gone. */
	Result<ModuleArena> get(uint64_t module_id);
	Result<> set_key(uint64_t module_id, uint64_t key);

	/* Hints of the arena's ring and of its ioctls, at most max. Any thread. */
	std::vector<cxl_kv_hint> read_hints(uint64_t module_id, size_t max);
	/* What earlier hints have left, as hints: where each session is, what each head scored. */
	std::vector<cxl_kv_hint> read_state(uint64_t module_id, const Geometry &geometry);

	struct Sampling {
		cxl_kv_sample_way way = CXL_KV_SAMPLE_OFF;
		uint32_t interval_ms = 0;
		uint32_t budget_permil = 0;
		bool flush_tlb = false;
	};
	Result<> set_sampling(uint64_t module_id, const Sampling &sampling);
	/* What sampling of the arena took since it was registered; zero where sysfs does not tell.
	 */
	struct SamplingCost {
		uint64_t spent_ns = 0, passes = 0;
	};
	[[nodiscard]] SamplingCost sampling_cost(uint64_t module_id) const;

private:
	explicit KmodDevice(Fd device) : device_(std::move(device)) {}

	template <typename T>
	std::vector<T> read_entries(unsigned long request, uint64_t module_id, uint32_t nr);

	Fd device_;
};

} // namespace cxlkv
