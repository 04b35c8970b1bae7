/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What bench-peers measures by: the patterns, and the judge of where pages were. */
#include "peers/judge.h"
#include "peers/patterns.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace cxlkv;
using namespace cxlkv::peers;

namespace {

constexpr uint64_t hot_bytes = 24u << 20;

std::vector<Place> all(size_t nr, Place place)
{
	return std::vector<Place>(nr, place);
}

} // namespace

TEST(PeersPatterns, ReadOnlyWhatWasMadeAndAreTheSameForTheSameSeed)
{
	for (const PatternKind &kind : pattern_kinds()) {
		auto pattern = kind.make(1, hot_bytes), again = kind.make(1, hot_bytes);
		std::vector<bool> made(pattern->shape().nr_blocks());
		auto make = [&](const std::vector<peers::Run> &runs) {
			for (const peers::Run &run : runs)
				for (uint32_t b = run.first; b < run.first + run.nr; b++) {
					ASSERT_LT(b, made.size()) << kind.name;
					EXPECT_FALSE(made[b]) << kind.name << ": made twice";
					made[b] = true;
				}
		};
		make(pattern->before());
		for (uint32_t i = 0; i < pattern->nr_intervals(); i++) {
			const Interval now = pattern->next();
			EXPECT_EQ(now.read, again->next().read) << kind.name;
			make(now.made);
			for (uint32_t block : now.read)
				ASSERT_TRUE(made.at(block)) << kind.name << ", interval " << i;
			for (uint32_t block : now.hot)
				ASSERT_TRUE(made.at(block)) << kind.name << ", interval " << i;
			EXPECT_LE(now.hot.size() * Shape::block_bytes, hot_bytes) << kind.name;
			if (!now.read.empty()) {
				EXPECT_EQ(now.step_ends.back(), now.read.size()) << kind.name;
			}
		}
	}
}

TEST(PeersPatterns, AnotherSeedIsOtherWork)
{
	for (const char *name : {"zipf", "hot-64K", "jump", "scan"}) {
		auto kind = std::ranges::find_if(pattern_kinds(), [&](const auto &k) {
			return k.name == std::string(name);
		});
		EXPECT_NE(kind->make(1, hot_bytes)->next().hot,
			  kind->make(2, hot_bytes)->next().hot)
			<< name;
	}
}

TEST(PeersJudge, CountsAReadByWhereItsPageIs)
{
	Judge judge(1, all(2, Place::Warm));
	judge.hot_set({0}, true);
	judge.read(0);
	judge.read(1);
	judge.look(all(2, Place::Warm));
	judge.read(0);
	judge.look({Place::Hot, Place::Warm});
	judge.read(0);
	judge.look({Place::Hot, Place::Warm});
	const Verdict v = judge.verdict();
	EXPECT_EQ(v.nr_reads, 4u);
	EXPECT_EQ(v.nr_hot_reads, 2u);
	EXPECT_EQ(v.nr_promoted, 1u);
	EXPECT_EQ(v.nr_promoted_of_hot_set, 1u);
	EXPECT_EQ(v.nr_useful, 1u);
	ASSERT_EQ(v.converged.size(), 1u);
	EXPECT_EQ(v.converged[0], 0.5);
	EXPECT_EQ(v.recall, 1);
}

TEST(PeersJudge, AMoveThatServesNobodyIsOfNoUse)
{
	Judge judge(8, {Place::Warm, Place::Hot, Place::Hot});
	judge.hot_set({1}, false);
	/* Page 0 comes up for nothing; page 1 goes down and has to come back, page 2 does not. */
	judge.look({Place::Hot, Place::Warm, Place::Warm});
	judge.look({Place::Hot, Place::Hot, Place::Warm});
	judge.read(1);
	judge.look({Place::Hot, Place::Hot, Place::Warm});
	const Verdict v = judge.verdict();
	EXPECT_EQ(v.nr_moved(), 4u);
	EXPECT_EQ(v.nr_useful, 2u);
	EXPECT_EQ(v.nr_ping_pong, 1u);
}

TEST(PeersJudge, WhatIsOfTheHotSetSoonAfterWasDemotedForNoUse)
{
	Judge judge(8, all(3, Place::Hot));
	judge.hot_set({0}, false);
	for (uint32_t i = 0; i < Judge::looks; i++)
		judge.look(all(3, Place::Warm));
	judge.hot_set({1}, true);
	for (uint32_t i = 0; i < 4 * Judge::looks; i++)
		judge.look(all(3, Place::Warm));
	judge.hot_set({2}, true);
	for (uint32_t i = 0; i < Judge::looks; i++)
		judge.look(all(3, Place::Warm));
	EXPECT_EQ(judge.verdict().nr_demoted, 3u);
	EXPECT_EQ(judge.verdict().nr_useful, 1u) << "page 2: long after";
}

TEST(PeersJudge, AMoveBackIsPingPongOnlySoonAfter)
{
	Judge judge(16, all(1, Place::Warm));
	judge.look(all(1, Place::Hot));
	judge.look(all(1, Place::Warm));
	EXPECT_EQ(judge.verdict().nr_ping_pong, 1u);
	for (uint32_t i = 0; i < 5 * Judge::looks; i++)
		judge.look(all(1, Place::Warm));
	judge.look(all(1, Place::Hot));
	EXPECT_EQ(judge.verdict().nr_ping_pong, 1u);
	EXPECT_EQ(judge.verdict().nr_promoted, 2u);
}

/* Migration takes a page's place away for a moment. */
TEST(PeersJudge, APageOnItsWayIsWhereItWas)
{
	Judge judge(1, all(1, Place::Hot));
	judge.read(0);
	judge.look(all(1, Place::Nowhere));
	judge.look(all(1, Place::Hot));
	EXPECT_EQ(judge.verdict().nr_hot_reads, 1u);
	EXPECT_EQ(judge.verdict().nr_moved(), 0u);
}
