/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* When promotions stop because hot memory is the slower one, with measurements that are given. */
#include "core/latency_gate.h"

#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

/* The same measurement some times. */
void add(LatencyGate &gate, const std::vector<double> &ns, int times = 8)
{
	for (int i = 0; i < times; i++)
		gate.add(ns);
}

TEST(LatencyGate, IsOpenUntilHotIsTheSlowerOneAndOpensWhenItIsNot)
{
	LatencyGate gate({0}, {1});

	EXPECT_TRUE(gate.open(0)) << "before the first measurement";
	add(gate, {100, 250});
	EXPECT_TRUE(gate.open(0));
	add(gate, {400, 250});
	EXPECT_FALSE(gate.open(0));
	EXPECT_FALSE(gate.any_open());
	add(gate, {100, 250});
	EXPECT_TRUE(gate.open(0));
	EXPECT_EQ(gate.nr_closed(), 1u);
}

TEST(LatencyGate, NeitherOneMeasurementNorNoiseAroundEqualitySwingsIt)
{
	LatencyGate gate({0}, {1});

	add(gate, {250, 250});
	gate.add({1000, 250});
	gate.add({1000, 250});
	EXPECT_TRUE(gate.open(0)) << "twice four times as slow";
	gate.add({250, 250});
	gate.add({1000, 250});
	EXPECT_TRUE(gate.open(0)) << "and once more";
	add(gate, {290, 250});
	EXPECT_TRUE(gate.open(0)) << "16 % slower";
	add(gate, {400, 250});
	EXPECT_FALSE(gate.open(0));
	add(gate, {280, 250});
	EXPECT_FALSE(gate.open(0)) << "still slower";
	add(gate, {200, 250}, 2);
	add(gate, {280, 250});
	EXPECT_FALSE(gate.open(0)) << "twice faster";
	EXPECT_EQ(gate.nr_closed(), 1u);
	add(gate, {255, 250});
	EXPECT_TRUE(gate.open(0));
}

TEST(LatencyGate, EachHotNodeHasItsOwnAndTheSlowestWarmNodeCounts)
{
	LatencyGate gate({0, 1}, {2, 3});

	add(gate, {100, 500, 200, 300});
	EXPECT_TRUE(gate.open(0));
	EXPECT_FALSE(gate.open(1));
	EXPECT_TRUE(gate.any_open());
	add(gate, {100, 350, 200, 400});
	EXPECT_TRUE(gate.open(1));
}

TEST(LatencyGate, WhatCannotBeMeasuredClosesNothing)
{
	LatencyGate gate({0}, {1});

	add(gate, {400, 0});
	EXPECT_TRUE(gate.open(0));
	add(gate, {400, 250});
	EXPECT_FALSE(gate.open(0));
	add(gate, {0, 250});
	EXPECT_TRUE(gate.open(0));
	add(gate, {400, 250});
	gate.reset();
	EXPECT_TRUE(gate.open(0));
	EXPECT_EQ(gate.nodes()[1].ns, 0);
}

} // namespace
