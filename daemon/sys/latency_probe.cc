/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/latency_probe.h"

#include "sys/pointer_chase.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>
#include <vector>

namespace cxlkv {

namespace {

constexpr size_t kBytes = 256 << 10, kLines = kBytes / kLine;
constexpr size_t kParts = 16; /* a measurement is that many runs over different lines */

void flush(std::byte *memory)
{
	for (size_t i = 0; i < kLines; i++) {
#if defined(__x86_64__)
		__builtin_ia32_clflush(memory + i * kLine);
#elif defined(__aarch64__)
		asm volatile("dc civac, %0" : : "r"(memory + i * kLine) : "memory");
#endif
	}
#if defined(__x86_64__)
	__builtin_ia32_mfence();
#elif defined(__aarch64__)
	asm volatile("dsb sy" : : : "memory");
#endif
}

} // namespace

Result<LatencyProbe> LatencyProbe::create(int node)
{
	void *at =
		mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return sys_error("memory to measure latency with");
	LatencyProbe probe(node, Mapping(at, kBytes));
	bitmask *mask = numa_allocate_nodemask();
	numa_bitmask_setbit(mask, static_cast<unsigned>(node));
	const long bound = mbind(at, kBytes, MPOL_PREFERRED, mask->maskp, mask->size + 1, 0);
	numa_bitmask_free(mask);
	if (bound)
		return sys_error(fmt::format("memory of node {}", node));
	madvise(at, kBytes, MADV_NOHUGEPAGE);
	link_lines(probe.memory_.data(), kBytes);
	/* Idle as they are, reclaim would demote or swap them. */
	mlock(at, kBytes);
	if (!probe.is_on_node())
		return error(ENOMEM,
			     fmt::format("node {} has no room to measure latency with", node));
	return probe;
}

bool LatencyProbe::is_on_node() const
{
	const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
	std::vector<void *> pages;

	for (size_t at = 0; at < kBytes; at += page_bytes)
		pages.push_back(memory_.data() + at);
	std::vector<int> status(pages.size(), -1);
	return !move_pages(0, pages.size(), pages.data(), nullptr, status.data(), 0) &&
	       std::ranges::all_of(status, [&](int got) { return got == node_; });
}

double LatencyProbe::measure() const
{
	using Clock = std::chrono::steady_clock;
	double best = 0;
	uint32_t line = 0;

	if (!is_on_node())
		return 0;
	line = follow_lines(memory_.data(), line, kLines); /* the code, and the page table */
	flush(memory_.data());
	for (size_t part = 0; part < kParts; part++) {
		const auto begin = Clock::now();
		line = follow_lines(memory_.data(), line, kLines / kParts);
		const double ns =
			std::chrono::duration<double, std::nano>(Clock::now() - begin).count() *
			kParts / kLines;
		best = part ? std::min(best, ns) : ns;
	}
	return best;
}

} // namespace cxlkv
