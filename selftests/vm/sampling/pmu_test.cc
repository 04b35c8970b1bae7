/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the kernel says of an event that interrupts too often. A guest has no PMU: a clock does. */
#include "sys/pmu.h"

#include <chrono>
#include <fstream>
#include <gtest/gtest.h>
#include <linux/perf_event.h>

using namespace cxlkv;

namespace {

TEST(Pmu, AnEventThatIsHeldIsCountedAndOneThatIsNotIsNot)
{
	using Clock = std::chrono::steady_clock;
	std::ofstream("/proc/sys/kernel/perf_event_max_sample_rate") << "100" << std::flush;
	perf_event_attr attr{};
	attr.size = sizeof(attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_CPU_CLOCK;
	attr.sample_type = PERF_SAMPLE_ADDR;
	attr.sample_period = 10'000'000'000; /* ns */
	auto seldom = PmuEvent::open(attr, 0);
	ASSERT_TRUE(seldom) << seldom.error().what;
	attr.sample_period = 100'000;
	auto often = PmuEvent::open(attr, 0);
	ASSERT_TRUE(often) << often.error().what;

	uint64_t nr = 0;
	for (auto end = Clock::now() + std::chrono::seconds(60); nr < 3 && Clock::now() < end;)
		nr = often->nr_throttled();
	EXPECT_GE(nr, 3u);
	EXPECT_EQ(seldom->nr_throttled(), 0u);
}

} // namespace
