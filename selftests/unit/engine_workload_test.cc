/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Turns are reproducible and fit; transcripts find every difference and refuse what is not one. */
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
	auto turns = plan_turns(options, 100000);
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
		auto turns = plan_turns(options, 100000);
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
		auto r = plan_turns(options, 100000);
		return !r && r.error().code == EINVAL;
	};
	EXPECT_TRUE(refused([](auto &o) { o.conversations = 0; }));
	EXPECT_TRUE(refused([](auto &o) { o.rounds = 0; }));
	EXPECT_TRUE(refused([](auto &o) { o.reply = 0; }));
	EXPECT_TRUE(refused([](auto &o) { o.reply = 256; }));
	EXPECT_TRUE(refused([](auto &o) { o.context = 100001; }));
	EXPECT_FALSE(plan_turns({}, 2047));
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
