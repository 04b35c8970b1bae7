/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a conversation does when its KV memory loses blocks, has no room or fails. */
#include "engine/conversation.h"
#include "engine/text.h"

#include <gtest/gtest.h>

namespace cxlkv::engine {
namespace {

/* Plain memory that answers a chosen lease with an error; a lost slot's bytes really go away. */
class FailingMemory : public KvMemory {
public:
	FailingMemory(const KvShape &shape, uint64_t fail_at, uint64_t nr_fails, int code)
	    : inner_(make_plain_memory(shape, 1)), fail_at_(fail_at), nr_fails_(nr_fails),
	      code_(code)
	{
	}

	Result<> open_slot(uint32_t slot) override { return inner_->open_slot(slot); }
	Result<> close_slot(uint32_t slot) override { return inner_->close_slot(slot); }
	Result<> lease(uint32_t slot, uint32_t tokens) override
	{
		EXPECT_EQ(nr_held_, 0) << "leased twice";
		const uint64_t n = nr_leases_++;
		if (n >= fail_at_ && n < fail_at_ + nr_fails_)
			return error(code_, "as the test asked");
		nr_held_++;
		return inner_->lease(slot, tokens);
	}
	Result<> unlease(uint32_t slot) override
	{
		nr_held_--;
		return inner_->unlease(slot);
	}
	std::byte *address(uint32_t slot) override
	{
		EXPECT_EQ(nr_held_, 1) << "touched without a lease";
		return inner_->address(slot);
	}
	void report(uint32_t, const Masses &) override { nr_reports_++; }
	bool worth_fetching(uint32_t, uint32_t, double) override { return worth_fetching_; }
	void set_position(uint32_t, uint32_t tokens) override { position_ = tokens; }
	Result<> park(uint32_t) override
	{
		EXPECT_EQ(nr_held_, 0) << "parked with a lease";
		nr_parks_++;
		return ok();
	}
	Result<> wake(uint32_t) override
	{
		if (nr_wakes_++ < nr_failing_wakes_)
			return error(wake_code_, "as the test asked");
		return ok();
	}
	[[nodiscard]] const KvStats &stats() const override { return inner_->stats(); }

	uint64_t nr_reports_ = 0, nr_parks_ = 0, nr_wakes_ = 0;
	uint32_t position_ = 0;
	/* The first wakes fail like this. */
	uint64_t nr_failing_wakes_ = 0;
	int wake_code_ = 0;
	bool worth_fetching_ = true;

private:
	std::unique_ptr<KvMemory> inner_;
	uint64_t nr_leases_ = 0, fail_at_, nr_fails_;
	int code_, nr_held_ = 0;
};

/* Keeps one beginning in the clear, whole blocks of every head; tells how often it was asked. */
class OnePrefix : public PrefixStore {
public:
	explicit OnePrefix(const KvShape &shape) : shape_(shape) {}

	uint32_t load(std::span<const uint8_t> tokens, std::byte *kv) override
	{
		nr_loads_++;
		const size_t nr = shape_.tokens_per_block *
				  std::min(tokens_.size() / shape_.tokens_per_block,
					   (tokens.size() - 1) / shape_.tokens_per_block);
		if (!nr || !std::equal(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(nr),
				       tokens_.begin()))
			return 0;
		copy(nr, kv_.data(), kv);
		return static_cast<uint32_t>(nr);
	}
	void store(std::span<const uint8_t> tokens, const std::byte *kv) override
	{
		nr_stores_++;
		tokens_.assign(tokens.begin(), tokens.end());
		kv_.resize(shape_.slot_bytes());
		copy(tokens.size() / shape_.tokens_per_block * shape_.tokens_per_block, kv,
		     kv_.data());
	}
	[[nodiscard]] const PrefixStats &stats() const override { return stats_; }

	uint64_t nr_loads_ = 0, nr_stores_ = 0;

private:
	void copy(size_t tokens, const std::byte *from, std::byte *to) const
	{
		for (uint32_t head = 0; head < shape_.heads; head++)
			for (uint32_t b = 0; b < tokens / shape_.tokens_per_block; b++)
				memcpy(to + shape_.block_offset(head, b),
				       from + shape_.block_offset(head, b), shape_.block_bytes());
	}

	KvShape shape_;
	std::vector<uint8_t> tokens_;
	std::vector<std::byte> kv_;
	PrefixStats stats_;
};

struct Outcome {
	Result<> served = ok();
	std::vector<uint8_t> tokens;
	std::vector<uint64_t> kv;
	Counters counters;
};

class ConversationOn : public testing::Test {
protected:
	void SetUp() override
	{
		Result<Model> model = Model::load("selftests/engine/model/tiny-llama.bin");
		ASSERT_TRUE(model) << model.error().what << " (run from the repository's top)";
		model_ = std::move(*model);
		Result<Text> text = read_text("selftests/engine/model/heldout.txt");
		ASSERT_TRUE(text) << text.error().what;
		text_ = std::move(*text);
		shape_ = *KvShape::create(model_.shape, 16, 256, KvType::F16);
	}

	/* Two turns of 60 + 12 tokens. */
	Outcome serve(KvMemory &memory, ConversationOptions options = {})
	{
		Outcome o;
		Decoder decoder(model_, shape_);
		options.score_every = 4;
		Conversation conversation(0, shape_, decoder, memory, o.counters, options);

		for (size_t turn = 0; turn < 2 && o.served; turn++)
			o.served = conversation.turn(std::span(text_).subspan(turn * 60, 60), 12);
		o.tokens = conversation.tokens();
		if (!o.served)
			return o;
		Result<std::vector<uint64_t>> kv = conversation.digest();
		EXPECT_TRUE(kv);
		if (kv)
			o.kv = *kv;
		return o;
	}

	Model model_;
	Text text_;
	KvShape shape_;
};

constexpr uint64_t never = ~0ull >> 1;

TEST_F(ConversationOn, ParksAndWakesAroundEveryTurn)
{
	FailingMemory memory(shape_, never, 0, 0);
	Outcome o = serve(memory);

	ASSERT_TRUE(o.served);
	EXPECT_EQ(o.tokens.size(), 144u);
	EXPECT_EQ(memory.nr_parks_, 3u); /* two turns and the digest */
	EXPECT_EQ(memory.nr_wakes_, 2u); /* not before the first turn */
	EXPECT_EQ(o.counters.wake_ns.size(), 2u);
	EXPECT_EQ(memory.position_, 144u);
	EXPECT_EQ(memory.nr_reports_, 7u); /* 26 steps, every fourth */
	EXPECT_EQ(o.counters.nr_prefilled, 120u);
	EXPECT_EQ(o.counters.nr_decoded, 24u);
}

TEST_F(ConversationOn, LostBlocksAreComputedAgainWithTheSameResult)
{
	FailingMemory good(shape_, never, 0, 0);
	const Outcome want = serve(good);

	/* At the first step of a turn, in the middle of a reply, and when the KV is read back. */
	for (uint64_t at : {0u, 5u, 13u, 20u, 26u}) {
		FailingMemory memory(shape_, at, 1, EIO);
		Outcome o = serve(memory);
		ASSERT_TRUE(o.served) << o.served.error().what;
		EXPECT_EQ(o.tokens, want.tokens) << "lost at lease " << at;
		EXPECT_EQ(o.kv, want.kv) << "lost at lease " << at;
		EXPECT_EQ(o.counters.nr_recomputed, 1u);
	}
}

TEST_F(ConversationOn, ComputesAgainWhatIsNotBackInTimeOrLostOrNotWorthFetching)
{
	FailingMemory good(shape_, never, 0, 0);
	const Outcome want = serve(good);

	for (int code : {EBUSY, EIO, 0}) {
		FailingMemory memory(shape_, never, 0, 0);
		memory.nr_failing_wakes_ = code ? 1 : 0;
		memory.wake_code_ = code;
		memory.worth_fetching_ = code != 0;
		Outcome o = serve(memory, {.decide = true});
		ASSERT_TRUE(o.served) << o.served.error().what;
		EXPECT_EQ(o.tokens, want.tokens) << code;
		EXPECT_EQ(o.kv, want.kv) << code;
		EXPECT_EQ(o.counters.nr_late, code == EBUSY ? 1u : 0u);
		EXPECT_EQ(o.counters.nr_recomputed, code == EIO ? 1u : 0u);
		EXPECT_EQ(o.counters.nr_chosen, code == 0 ? 2u : 0u); /* and for the digest */
		EXPECT_EQ(o.counters.wake_ns.size(), code == 0 ? 0u : 1u);
	}
	FailingMemory memory(shape_, never, 0, 0);
	memory.nr_failing_wakes_ = 1;
	memory.wake_code_ = ENOTCONN;
	EXPECT_EQ(serve(memory).served.error().code, ENOTCONN);
}

TEST_F(ConversationOn, BeginsWithWhatAnotherComputedWithTheSameResult)
{
	FailingMemory first(shape_, never, 0, 0), second(shape_, never, 0, 0);
	OnePrefix prefixes(shape_);
	const Outcome want = serve(first, {.prefixes = &prefixes});
	EXPECT_EQ(want.counters.nr_reused, 0u);
	Outcome o = serve(second, {.prefixes = &prefixes});

	ASSERT_TRUE(o.served);
	EXPECT_EQ(o.tokens, want.tokens);
	EXPECT_EQ(o.kv, want.kv);
	EXPECT_EQ(o.counters.nr_reused, 48u) << "three blocks of 16 of the 60 tokens";
	EXPECT_EQ(o.counters.nr_prefilled, want.counters.nr_prefilled - 48);
	EXPECT_EQ(prefixes.nr_stores_, 2u) << "first turns only";

	/* What is lost begins with it too. */
	FailingMemory third(shape_, never, 0, 0);
	third.nr_failing_wakes_ = 1;
	third.wake_code_ = EIO;
	o = serve(third, {.prefixes = &prefixes});
	ASSERT_TRUE(o.served);
	EXPECT_EQ(o.tokens, want.tokens);
	EXPECT_EQ(o.kv, want.kv);
	EXPECT_EQ(o.counters.nr_reused, 96u);
}

TEST_F(ConversationOn, GivesUpWhenEveryCopyIsLost)
{
	FailingMemory memory(shape_, 15, never, EIO);
	Outcome o = serve(memory);

	ASSERT_FALSE(o.served);
	EXPECT_EQ(o.served.error().code, EIO);
}

TEST_F(ConversationOn, OtherErrorsEndTheTurnAndAreNotRetried)
{
	for (int code : {EBUSY, ENOTCONN, ETIMEDOUT}) {
		FailingMemory memory(shape_, 15, 1, code);
		Outcome o = serve(memory);
		ASSERT_FALSE(o.served);
		EXPECT_EQ(o.served.error().code, code);
		EXPECT_EQ(o.counters.nr_recomputed, 0u);
	}
}

TEST_F(ConversationOn, ATurnThatOutgrowsTheSlotIsRefused)
{
	FailingMemory memory(shape_, never, 0, 0);
	Counters counters;
	Decoder decoder(model_, shape_);
	Conversation conversation(0, shape_, decoder, memory, counters, {});

	Result<> r = conversation.turn(std::span(text_).first(250), 7);
	ASSERT_FALSE(r);
	EXPECT_EQ(r.error().code, EINVAL);
	EXPECT_TRUE(conversation.turn(std::span(text_).first(250), 6));
}

} // namespace
} // namespace cxlkv::engine
