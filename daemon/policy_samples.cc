/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sampled accesses on their way to the policy, and how often each arena is sampled. */
#include "base/log.h"
#include "policy_thread.h"

#include <unistd.h>

namespace cxlkv {

namespace {

constexpr size_t kSamplesATick = 1 << 16; /* records of 64 pages */

/* The record is about pages, the policy about blocks: a block is touched when one of its pages is.
 */
struct TouchedBlocks {
	uint32_t first = 0;
	uint64_t touched = 0, written = 0;

	TouchedBlocks(const cxl_kv_bpf_touch &record, const Geometry &geometry)
	{
		static const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
		const uint64_t pages_per_block = geometry.block_bytes / page_bytes;
		const uint64_t from = record.first_page / pages_per_block;
		if (from >= geometry.nr_blocks())
			return;
		first = static_cast<uint32_t>(from);
		for (uint64_t bit = 0; bit < 64; bit++) {
			uint64_t block = (record.first_page + bit) / pages_per_block - first;
			touched |= (record.touched >> bit & 1) << block;
			written |= (record.written >> bit & 1) << block;
		}
		if (uint64_t left = geometry.nr_blocks() - first; left < 64) {
			touched &= (1ull << left) - 1;
			written &= (1ull << left) - 1;
		}
	}
};

} // namespace

PolicyThread::Samples &PolicyThread::samples_of(const Arena &arena, uint64_t now)
{
	auto at = samples_.find(arena.options.number);

	if (at == samples_.end())
		at = samples_.emplace(arena.options.number,
				      Samples{SampleInterval(arena.geometry.nr_blocks(),
							     options_.sampling.interval_ms,
							     options_.min_sample_interval_ms),
					      now,
					      {}})
			     .first;
	return at->second;
}

void PolicyThread::drain_samples(uint64_t now)
{
	if (!sampler_.loaded())
		return;
	const bool has_passes = sampler_.source() != "pmu";
	sampler_.drain(kSamplesATick, [&](const cxl_kv_bpf_touch &record) {
		auto entry = arenas_.find(record.arena);
		if (!entry)
			return;
		const TouchedBlocks blocks(record, entry->arena->geometry);
		Samples &samples = samples_of(*entry->arena, now);
		samples.interval.touched(blocks.first, blocks.touched);
		/* The PMU has no passes: there it is the interval. */
		const uint64_t begun_ms =
			has_passes ? samples.pass.of(record.first_page, record.touched, now,
						     samples.interval.interval_ms())
				   : samples.begun_ms;
		policy_.sample(record.arena, blocks.first, blocks.touched, blocks.written,
			       begun_ms);
	});
	for (const auto &entry : arenas_.all())
		end_interval(*entry, now);
}

void PolicyThread::end_interval(const ArenaEntry &entry, uint64_t now)
{
	Samples &samples = samples_of(*entry.arena, now);
	const uint32_t before_ms = samples.interval.interval_ms();

	if (now - samples.begun_ms < before_ms)
		return;
	samples.begun_ms = now;
	policy_.interval(entry.arena->options.number);
	if (!entry.module_id || options_.min_sample_interval_ms >= options_.sampling.interval_ms)
		return;
	const auto cost = module_->sampling_cost(entry.module_id);
	const uint64_t spent_ns = cost.spent_ns - samples.cost.spent_ns;
	const uint64_t passes = cost.passes - samples.cost.passes;
	samples.cost = cost;
	/* One that is not through yet takes longer than this. */
	samples.interval.end(passes ? spent_ns / passes : 2 * spent_ns,
			     options_.sampling.budget_permil);
	if (samples.interval.interval_ms() == before_ms)
		return;
	KmodDevice::Sampling sampling = options_.sampling;
	sampling.interval_ms = samples.interval.interval_ms();
	if (auto set = module_->set_sampling(entry.module_id, sampling); !set)
		log_warning("{}; its interval stays", set.error().what);
}

std::map<uint32_t, uint32_t> PolicyThread::sample_intervals_ms() const
{
	std::map<uint32_t, uint32_t> intervals;
	std::lock_guard lock(policy_mutex_);

	for (const auto &[arena, samples] : samples_)
		intervals.emplace(arena, samples.interval.interval_ms());
	return intervals;
}

} // namespace cxlkv
