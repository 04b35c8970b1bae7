// SPDX-License-Identifier: LGPL-2.1-or-later
/* Fetch or recompute: the worked tables of the source documents, and the rule around them. */
#include "core/decide.h"
#include "core/transfer_model.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace cxlkv;

namespace {

/* 160,000 bytes a token at 50,000 tokens/s, as the worked tables count. */
DecideInput worked(double tokens, double GBps)
{
	DecideInput in;
	in.tokens = tokens;
	in.prefill_tokens_per_s = 50000;
	in.parts[1] = {tokens * 160000, GBps * 1e9, 0};
	return in;
}

/* As the tables print them: two digits below 10 ms, whole ms above. */
double printed_ms(double seconds)
{
	double ms = seconds * 1e3;
	return ms < 9.95 ? std::round(ms * 10) / 10 : std::round(ms);
}

struct Row {
	double tokens, GBps, fetch_ms, recompute_ms;
	Verdict thrifty, fast; /* with the margin of 3, and where latency counts */
};

constexpr Verdict F = Verdict::Fetch, R = Verdict::Recompute;

} // namespace

TEST(Decide, WorkedTables)
{
	const Row rows[] = {
		{1000, 55, 2.9, 20, F, F},   {1000, 7, 23, 20, R, R},
		{1000, 2, 80, 20, R, R},     {20000, 900, 3.6, 400, F, F},
		{20000, 55, 58, 400, F, F},  {20000, 50, 64, 400, F, F},
		{20000, 7, 457, 400, R, R},  {20000, 3, 1067, 400, R, R},
		{20000, 2, 1600, 400, R, R},
	};
	for (const Row &row : rows) {
		DecideInput in = worked(row.tokens, row.GBps);
		Decision thrifty = decide(in);
		EXPECT_DOUBLE_EQ(printed_ms(thrifty.fetch_s), row.fetch_ms) << row.GBps;
		EXPECT_DOUBLE_EQ(printed_ms(thrifty.recompute_s), row.recompute_ms) << row.GBps;
		EXPECT_EQ(thrifty.verdict, row.thrifty) << row.tokens << " at " << row.GBps;
		in.latency = true;
		EXPECT_EQ(decide(in).verdict, row.fast) << row.tokens << " at " << row.GBps;
	}
}

TEST(Decide, MarginIsThreeAndInclusive)
{
	DecideInput in = worked(1000, 24); /* 20 ms against 6.67 ms: exactly 3 times */
	EXPECT_EQ(decide(in).verdict, Verdict::Fetch);
	in.parts[1].bytes_per_s = 23.9e9;
	EXPECT_EQ(decide(in).verdict, Verdict::Recompute);
	in.latency = true;
	EXPECT_EQ(decide(in).verdict, Verdict::Fetch) << "cheaper at all";
	in.latency = false;
	in.margin = 2;
	EXPECT_EQ(decide(in).verdict, Verdict::Fetch);
}

TEST(Decide, QueueCountsAsFetchTime)
{
	DecideInput in = worked(1000, 55);
	ASSERT_EQ(decide(in).verdict, Verdict::Fetch);
	in.parts[1].wait_s = 0.1;
	EXPECT_EQ(decide(in).verdict, Verdict::Recompute);
	EXPECT_NEAR(decide(in).fetch_s, 0.1029, 1e-4);
	in.parts[1].bytes = 0; /* nothing is there to be waited for */
	EXPECT_EQ(decide(in).fetch_s, 0);
}

TEST(Decide, AskingCostsSomethingWhereThereIsSomethingToFetch)
{
	DecideInput in = worked(10, 55);
	in.margin = 1;
	EXPECT_EQ(decide(in).verdict, F);
	in.ask_s = 0.001; /* computing takes 0.2 ms */
	EXPECT_EQ(decide(in).verdict, R);
	EXPECT_NEAR(decide(in).fetch_s, 0.001 + 10 * 160000 / 55e9, 1e-9);
	in.parts = {};
	EXPECT_EQ(decide(in).fetch_s, 0) << "all of it is hot";
}

TEST(Decide, PartsOfTwoTiersAddUp)
{
	DecideInput in = worked(20000, 7);
	in.parts[1].bytes /= 2;
	in.parts[0] = {1.6e9, 55e9, 0};
	EXPECT_NEAR(decide(in).fetch_s, 0.2286 + 0.0291, 1e-4);
}

TEST(Decide, UnknownWayIsNotTaken)
{
	DecideInput in = worked(1000, 0);
	in.latency = in.can_split = true;
	EXPECT_EQ(decide(in).verdict, Verdict::Recompute);
	in = worked(1000, 55);
	in.prefill_tokens_per_s = 0;
	EXPECT_EQ(decide(in).verdict, Verdict::Fetch) << "it cannot be computed";
}

TEST(Decide, SplitEndsBothAtOnce)
{
	DecideInput in = worked(20000, 8); /* 400 ms either way */
	in.latency = in.can_split = true;
	Decision d = decide(in);
	EXPECT_EQ(d.verdict, Verdict::Split);
	EXPECT_EQ(d.split_tokens, 10000);
	EXPECT_NEAR(d.chosen_s, 0.2, 1e-9);
	in.parts[1].wait_s = 0.1; /* meanwhile 5,000 tokens are computed */
	d = decide(in);
	EXPECT_EQ(d.verdict, Verdict::Split);
	EXPECT_EQ(d.split_tokens, 12500);
	EXPECT_NEAR(d.chosen_s, 0.25, 1e-9);
	in.parts[1] = {20000 * 160000.0, 900e9, 0}; /* saves less than a tenth */
	EXPECT_EQ(decide(in).verdict, Verdict::Fetch);
	in.can_split = false;
	in.parts[1] = {20000 * 160000.0, 8e9, 0};
	EXPECT_NE(decide(in).verdict, Verdict::Split);
}

TEST(Decide, DropsWhatIsHardlyAskedForAgain)
{
	DecideInput in = worked(20000, 55); /* 58 against 400 ms */
	in.keep_s = 0.06;                   /* to write it down */
	in.return_probability = 0.9;        /* 0.067 + 0.058, 3 times: 0.375 s */
	EXPECT_EQ(decide(in).verdict, Verdict::Fetch);
	in.return_probability = 0.5; /* 0.12 + 0.058, 3 times: 0.53 s */
	EXPECT_EQ(decide(in).verdict, Verdict::Drop);
	in.latency = true;
	EXPECT_EQ(decide(in).verdict, Verdict::Fetch);
	in.return_probability = 0.1;
	EXPECT_EQ(decide(in).verdict, Verdict::Drop);
	in.keep_s = 0; /* it is written already: the chance does not matter */
	EXPECT_EQ(decide(in).verdict, Verdict::Fetch);
	in.return_probability = 0;
	EXPECT_EQ(decide(in).verdict, Verdict::Drop);
}

TEST(TransferModel, LearnsFixedPartAndBandwidth)
{
	TransferModel model;
	EXPECT_EQ(model.bytes_per_s(), 0);
	for (int i = 0; i < 64; i++) {
		double bytes = 1e5 * (1 + i % 7);
		model.add(bytes, 0.001 + bytes / 2e9);
	}
	EXPECT_NEAR(model.fixed_s(), 0.001, 1e-5);
	EXPECT_NEAR(model.bytes_per_s(), 2e9, 1e7);
}

TEST(TransferModel, ADisturbedTransferSaysNothingOfTheNext)
{
	TransferModel model;
	auto predicted = [&](double bytes) {
		return model.fixed_s() + bytes / model.bytes_per_s();
	};
	for (int i = 0; i < 200; i++) {
		const double bytes = i % 2 ? 64e3 : 8e6;
		const bool disturbed = i % 5 == 3; /* a time slice of somebody else's */
		model.add(bytes, 1e-4 + bytes / 2e9 + (disturbed ? 0.01 : 0));
	}
	EXPECT_NEAR(predicted(64e3), 1e-4 + 64e3 / 2e9, 0.5 * (1e-4 + 64e3 / 2e9));
	EXPECT_NEAR(predicted(8e6), 1e-4 + 8e6 / 2e9, 0.5 * (1e-4 + 8e6 / 2e9));
}

TEST(TransferModel, FollowsAChangeAndSurvivesOneSize)
{
	TransferModel model;
	for (int i = 0; i < 100; i++)
		model.add(1e6, 1e6 / 1e9);
	EXPECT_NEAR(model.bytes_per_s(), 1e9, 1);
	EXPECT_EQ(model.fixed_s(), 0);
	for (int i = 0; i < 64; i++)
		model.add(1e6, 1e6 / 1e8); /* the device is ten times slower now */
	EXPECT_NEAR(model.bytes_per_s(), 1e8, 4e7);
	model.add(0, 1); /* says nothing */
	model.add(1, 0);
	EXPECT_NEAR(model.bytes_per_s(), 1e8, 4e7);
}
