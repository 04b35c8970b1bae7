/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Turns are reproducible and fit; transcripts find every difference and refuse what is not one. */
#include "engine/replay.h"
#include "engine/transcript.h"
#include "engine/workload.h"

#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <unistd.h>

namespace cxlkv::engine {
namespace {

TEST(Workload, EveryConversationHasATurnInEveryRoundAndFitsItsContext)
{
	WorkloadOptions options;
	auto turns = plan_turns(options, 100000, even_pace(options));
	std::map<uint32_t, uint32_t> tokens;

	ASSERT_TRUE(turns);
	ASSERT_EQ(turns->size(), size_t{options.conversations} * options.rounds);
	for (size_t i = 0; i < turns->size(); i++) {
		const Turn &t = (*turns)[i];
		ASSERT_LT(t.conversation, options.conversations);
		ASSERT_LE(t.text_offset + t.text_bytes, 100000u);
		tokens[t.conversation] += t.text_bytes + t.reply;
	}
	for (auto [conversation, n] : tokens) {
		EXPECT_LE(n, options.context);
		EXPECT_GE(n, options.context / 2 - options.rounds);
	}
	EXPECT_EQ(tokens[0], options.context);
	for (uint32_t round = 0; round < options.rounds; round++) {
		std::set<uint32_t> served;
		for (uint32_t i = 0; i < options.conversations; i++)
			served.insert((*turns)[round * options.conversations + i].conversation);
		EXPECT_EQ(served.size(), options.conversations) << "round " << round;
	}
}

TEST(Workload, TheSeedAloneDecides)
{
	WorkloadOptions options;
	auto offsets = [&] {
		std::vector<size_t> all;
		auto turns = plan_turns(options, 100000, even_pace(options));
		EXPECT_TRUE(turns);
		for (const Turn &t : *turns)
			all.push_back(t.text_offset);
		return all;
	};
	const auto first = offsets();

	EXPECT_EQ(offsets(), first);
	options.seed++;
	EXPECT_NE(offsets(), first);
}

TEST(Workload, RefusesWhatDoesNotFit)
{
	auto refused = [](auto change) {
		WorkloadOptions options;
		change(options);
		auto r = plan_turns(options, 100000, even_pace(options));
		return !r && r.error().code == EINVAL;
	};
	EXPECT_TRUE(refused([](auto &o) { o.conversations = 0; }));
	EXPECT_TRUE(refused([](auto &o) { o.rounds = 0; }));
	EXPECT_TRUE(refused([](auto &o) { o.reply = 0; }));
	EXPECT_TRUE(refused([](auto &o) { o.reply = 256; }));
	EXPECT_TRUE(refused([](auto &o) { o.context = 100001; }));
	EXPECT_FALSE(plan_turns({}, 2047, even_pace({})));
}

TEST(Workload, ConversationsWithAPromptBeginAlike)
{
	WorkloadOptions options;
	options.prompts = 4;
	options.prompt_tokens = 100;
	auto plain = plan_turns({}, 100000, even_pace({}));
	auto turns = plan_turns(options, 100000, even_pace(options));

	ASSERT_TRUE(plain && turns);
	for (size_t i = 0; i < turns->size(); i++) {
		const Turn &t = (*turns)[i];
		const bool first = i < options.conversations;
		EXPECT_EQ(t.prompt_bytes, first ? 100u : 0u);
		EXPECT_EQ(t.prompt_offset, first ? t.conversation % 4 * 100u : 0u);
		EXPECT_EQ(t.prompt_bytes + t.text_bytes, (*plain)[i].text_bytes);
	}
}

class PaceFile : public testing::Test {
protected:
	~PaceFile() override { unlink(path_.c_str()); }

	Result<Pace> read(const std::string &lines, uint32_t conversations, uint32_t rounds)
	{
		WorkloadOptions options;
		std::ofstream(path_) << lines;
		options.conversations = conversations;
		options.rounds = rounds;
		return read_pace(options, path_);
	}

	std::string path_ = testing::TempDir() + "engine_pace_test." + std::to_string(getpid());
};

TEST_F(PaceFile, GivesWhatEachRequestAddedAndWhenItCame)
{
	/* The second session has too few requests, the third was cut in between. */
	auto pace = read("2 0 1000 100 0 -1 0 1-16\n"
			 "2 9000 1400 50 0 0 16 17-22\n"
			 "2 16000 1950 10 0 1 22 23-30\n"
			 "2 99000 9999 10 0 1 22 23-30\n"
			 "3 0 500 5 0 -1 0 .\n"
			 "5 100 600 10 0 -1 0 1\n"
			 "5 400 300 10 0 -1 0 1\n"
			 "5 500 709 10 0 -1 0 1\n",
			 2, 3);
	ASSERT_TRUE(pace) << pace.error().what;
	ASSERT_EQ(pace->size(), 2u);
	EXPECT_EQ((*pace)[0].size(), 3u);
	EXPECT_DOUBLE_EQ((*pace)[0][0].share, 1000.0 / 1800);
	EXPECT_DOUBLE_EQ((*pace)[0][1].share, 300.0 / 1800);
	EXPECT_DOUBLE_EQ((*pace)[0][2].share, 500.0 / 1800);
	EXPECT_EQ((*pace)[0][0].gap_ms, 9000);
	EXPECT_EQ((*pace)[0][1].gap_ms, 9000);
	EXPECT_EQ((*pace)[0][2].gap_ms, 7000);
	EXPECT_DOUBLE_EQ((*pace)[1][1].share, 1.0 / 1000) << "a cut context added nothing";
	EXPECT_EQ((*pace)[1][2].gap_ms, 100);
}

TEST_F(PaceFile, RefusesAnotherFileAndOneWithTooLittle)
{
	EXPECT_EQ(read("{\"timestamp\": 0}\n", 1, 1).error().code, EINVAL);
	EXPECT_EQ(read("2 0 1000 100\n2 9 1100 1\n", 2, 2).error().code, EINVAL);
	EXPECT_FALSE(read_pace({}, path_ + ".none"));
}

TEST(Schedule, ServesWhoIsDueFirstAndCompressesGaps)
{
	WorkloadOptions options;
	options.conversations = 2;
	options.rounds = 2;
	const Pace pace{{{0.5, 1000}, {0.5, 9000}}, {{0.5, 3000}, {0.5, 2000}}};
	auto turns = plan_turns(options, 100000, pace);
	ASSERT_TRUE(turns);
	Schedule schedule(*turns, options, 0.01);
	std::vector<uint32_t> order;
	std::vector<double> times;

	for (double now = 0; !schedule.empty();) {
		now = std::max(now, schedule.due_ms());
		const Turn turn = schedule.take();
		order.push_back(turn.conversation);
		schedule.ended(turn, now);
		times.push_back(now);
	}
	EXPECT_EQ(order, (std::vector<uint32_t>{0, 1, 1, 0}));
	EXPECT_EQ(times, (std::vector<double>{10, 30, 50, 100}));
}

class Transcript : public testing::Test {
protected:
	~Transcript() override { unlink(path_.c_str()); }

	bool reads(const std::string &line)
	{
		std::ofstream(path_) << line << '\n';
		return static_cast<bool>(read_transcript(path_));
	}

	std::string path_ =
		testing::TempDir() + "engine_transcript_test." + std::to_string(getpid());
	std::vector<Record> records_{{{0, 10, 255}, {1, ~0ull}}, {{}, {}}};
};

TEST_F(Transcript, ComesBackAsItWasWritten)
{
	ASSERT_TRUE(write_transcript(path_, records_));
	auto back = read_transcript(path_);

	ASSERT_TRUE(back) << back.error().what;
	EXPECT_TRUE(compare(records_, *back).identical());
}

TEST_F(Transcript, FindsOneTokenOneBlockAndAMissingConversation)
{
	auto token = records_, block = records_, fewer = records_;
	token[0].tokens[2] = 254;
	block[0].kv[1]--;
	fewer.pop_back();

	EXPECT_EQ(compare(records_, token).nr_tokens_identical, 1u);
	EXPECT_FALSE(compare(records_, token).identical());
	EXPECT_EQ(compare(records_, block).nr_tokens_identical, 2u);
	EXPECT_EQ(compare(records_, block).nr_kv_identical, 1u);
	EXPECT_FALSE(compare(records_, block).identical());
	EXPECT_FALSE(compare(records_, fewer).identical());
	EXPECT_FALSE(compare({}, {}).identical()) << "nothing compared is not a success";
}

TEST_F(Transcript, RefusesOtherFiles)
{
	EXPECT_TRUE(reads(R"({"tokens":"00ff","kv":["0a"]})"));
	EXPECT_FALSE(reads(""));
	EXPECT_FALSE(reads("[]"));
	EXPECT_FALSE(reads(R"({"tokens":"00ff"})"));
	EXPECT_FALSE(reads(R"({"tokens":"0","kv":[]})"));
	EXPECT_FALSE(reads(R"({"tokens":"0g","kv":[]})"));
	EXPECT_FALSE(reads(R"({"tokens":5,"kv":[]})"));
	EXPECT_FALSE(reads(R"({"tokens":"00","kv":[5]})"));
	EXPECT_FALSE(reads(R"({"tokens":"00","kv":["11111111111111111"]})"));
	EXPECT_FALSE(read_transcript(path_ + ".none"));
}

} // namespace
} // namespace cxlkv::engine
