/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/phase.h"

#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

Phase after(uint64_t reads, uint64_t writes, int intervals)
{
	PhaseDetector detector;
	for (int i = 0; i < intervals; i++)
		detector.update(reads, writes, 10);
	return detector.phase();
}

} // namespace

TEST(Phase, SwitchesAtTenReadsPerWriteAndNotBefore)
{
	EXPECT_EQ(after(0, 0, 3), Phase::Unknown);
	EXPECT_EQ(after(100, 10, 1), Phase::Decode);
	EXPECT_EQ(after(100, 10, 50), Phase::Decode);
	EXPECT_EQ(after(99, 10, 1), Phase::Prefill);
	EXPECT_EQ(after(99, 10, 50), Phase::Prefill);
}

TEST(Phase, DecodeSurvivesABriefDip)
{
	PhaseDetector detector;
	for (int i = 0; i < 10; i++)
		detector.update(100, 10, 10);
	for (int i = 0; i < 20; i++)
		detector.update(60, 10, 10);
	EXPECT_EQ(detector.phase(), Phase::Decode);
	for (int i = 0; i < 20; i++)
		detector.update(40, 10, 10);
	EXPECT_EQ(detector.phase(), Phase::Prefill);
	/* and back up only at the full ratio */
	for (int i = 0; i < 20; i++)
		detector.update(90, 10, 10);
	EXPECT_EQ(detector.phase(), Phase::Prefill);
}

TEST(Phase, IdleIntervalsChangeNothing)
{
	PhaseDetector detector;
	detector.update(100, 10, 10);
	for (int i = 0; i < 100; i++)
		detector.update(0, 0, 10);
	EXPECT_EQ(detector.phase(), Phase::Decode);
}
