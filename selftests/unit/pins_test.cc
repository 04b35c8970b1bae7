/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pins with a lifetime: what a newer pin leaves of an older one, and when they end. */
#include "core/pins.h"

#include <gtest/gtest.h>
#include <set>

using namespace cxlkv;

namespace {

std::set<uint32_t> blocks(const std::vector<TimedPins::Range> &ranges)
{
	std::set<uint32_t> all;
	for (TimedPins::Range range : ranges)
		for (uint32_t b = range.first; b < range.first + range.nr; b++)
			EXPECT_TRUE(all.insert(b).second) << b << " ended twice";
	return all;
}

} // namespace

TEST(Pins, EndAtTheirTimeAndOnce)
{
	TimedPins pins;
	EXPECT_TRUE(pins.set(10, 3, 500).empty());
	EXPECT_TRUE(pins.expired(499).empty());
	EXPECT_EQ(blocks(pins.expired(500)), (std::set<uint32_t>{10, 11, 12}));
	EXPECT_TRUE(pins.expired(1000).empty());
}

TEST(Pins, ANewerOneReplacesWhatItCoversAndNoMore)
{
	TimedPins pins;
	pins.set(10, 10, 500);
	pins.set(13, 2, 900); /* in the middle: both ends stay as they were */
	EXPECT_EQ(blocks(pins.expired(500)), (std::set<uint32_t>{10, 11, 12, 15, 16, 17, 18, 19}));
	EXPECT_EQ(blocks(pins.expired(900)), (std::set<uint32_t>{13, 14}));

	pins.set(10, 4, 500);
	pins.set(14, 4, 500);
	pins.set(18, 4, 500);
	pins.set(12, 8, 900); /* the end of one, all of the next, the beginning of a third */
	EXPECT_EQ(blocks(pins.expired(500)), (std::set<uint32_t>{10, 11, 20, 21}));
	EXPECT_EQ(blocks(pins.expired(900)).size(), 8u);
}

TEST(Pins, OneWithoutAnEndOutlivesTheOneItReplaced)
{
	TimedPins pins;
	pins.set(10, 4, 500);
	pins.set(12, 2, 0);
	EXPECT_EQ(blocks(pins.expired(1'000'000)), (std::set<uint32_t>{10, 11}));
}

TEST(Pins, WhereThereAreTooManyTheOneThatEndsFirstEndsEarly)
{
	TimedPins pins;
	const auto nr = static_cast<uint32_t>(TimedPins::max_pins);
	for (uint32_t i = 0; i < nr; i++)
		EXPECT_TRUE(pins.set(2 * i, 1, 1000 + (i + 7) % nr).empty());
	EXPECT_EQ(blocks(pins.set(2 * nr, 1, 9000)), (std::set<uint32_t>{2 * (nr - 7)}));
	EXPECT_EQ(blocks(pins.expired(9000)).size(), nr);
}
