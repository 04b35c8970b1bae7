/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loads and pins the BPF programs, keeps their arena table, hands their samples
 * to the policy. Which source delivers samples is found by trying, best first:
 * PMU (addresses of memory accesses), module (accessed bits or refaults), none
 * (hints only). What could not be used says why.
 *
 * All sources see CPU accesses only: a GPU that reads over PCIe is invisible.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "sys/arena.h"
#include "sys/pmu.h"

#include "cxl_kv_bpf.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

struct cxl_kv_bpf;
struct bpf_link;
struct ring_buffer;

namespace cxlkv {

class Sampler {
public:
	/* Below a bpffs; the maps are pinned here and removed again by the destructor. */
	static constexpr const char *kPinDir = "/sys/fs/bpf/cxl_kv";

	/* Never fails: without BPF the source is "none" and why() says so. */
	static std::unique_ptr<Sampler> create();
	/* One that loads nothing; reason is what why() says. */
	static std::unique_ptr<Sampler> none(std::string reason);
	~Sampler();

	/* module_id: the module's name of the arena, or our number where there is no module. */
	void add(const Arena &arena, uint64_t module_id);
	void remove(const Arena &arena, uint64_t module_id);

	/* Samples since the last call, at most max. One thread. */
	void drain(size_t max, const std::function<void(const cxl_kv_bpf_touch &)> &use);

	[[nodiscard]] const std::string &source() const { return source_; }
	/* Sources that are not in use: name, reason. */
	[[nodiscard]] const std::vector<std::pair<std::string, std::string>> &why() const
	{
		return why_;
	}
	[[nodiscard]] bool loaded() const { return programs_ != nullptr; }
	/* Samples were to be had: where nothing is loaded, that is a failure. */
	[[nodiscard]] bool wanted() const { return wanted_; }
	/* Sum over the CPUs. */
	[[nodiscard]] cxl_kv_bpf_totals totals() const;
	/* How often the kernel held the PMU's samples of each CPU because they were too many. One
	 * thread. Empty without a PMU. */
	[[nodiscard]] std::vector<uint64_t> throttled_by_cpu() const;
	/* One entry a CPU, for the sampler that is blind on some of them. */
	[[nodiscard]] std::vector<cxl_kv_bpf_totals> totals_by_cpu() const;

private:
	Sampler() = default;
	Result<> load();
	Result<> pin();
	void unpin();
	void attach_all();
	Result<> attach_pmu();
	static int on_record(void *self, void *data, size_t bytes);

	struct Unload {
		void operator()(cxl_kv_bpf *programs) const;
	};
	struct FreeRing {
		void operator()(ring_buffer *ring) const;
	};
	std::unique_ptr<cxl_kv_bpf, Unload> programs_;
	std::unique_ptr<ring_buffer, FreeRing> ring_;
	std::vector<PmuEvent> pmu_events_; /* by CPU */
	std::vector<bpf_link *> pmu_links_;
	std::string source_ = "none";
	bool wanted_ = true;
	std::vector<std::pair<std::string, std::string>> why_;
	/* Of the drain() that runs. */
	const std::function<void(const cxl_kv_bpf_touch &)> *use_ = nullptr;
	size_t left_ = 0;
};

} // namespace cxlkv
