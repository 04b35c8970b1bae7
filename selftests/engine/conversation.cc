/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/conversation.h"
#include "base/log.h"
#include "engine/hash.h"

#include <chrono>
#include <fmt/format.h>

namespace cxlkv::engine {

namespace {

constexpr uint32_t max_recomputes =
	3; /* in one step: a tier that loses more is not worth waiting for */

uint64_t now_ns()
{
	return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
				     std::chrono::nanoseconds(1));
}

} // namespace

Conversation::Conversation(uint32_t slot, const KvShape &shape, Decoder &decoder, KvMemory &memory,
			   Counters &counters, const ConversationOptions &options)
    : slot_(slot), shape_(shape), decoder_(decoder), memory_(memory), counters_(counters),
      options_(options)
{
}

Result<> Conversation::turn(std::span<const uint8_t> text, uint32_t reply)
{
	if (tokens_.size() + text.size() + reply > shape_.max_tokens)
		return error(EINVAL, fmt::format("conversation {} would outgrow its {} tokens",
						 slot_, shape_.max_tokens));
	if (Result<> r = wake(); !r)
		return r;
	if (Result<> r = step(text); !r)
		return r;
	for (uint32_t i = 0; i < reply; i++) {
		const uint8_t next = decoder_.best();
		if (Result<> r = step({&next, 1}); !r)
			return r;
	}
	return memory_.park(slot_);
}

Result<> Conversation::wake()
{
	if (!open_) {
		if (Result<> r = memory_.open_slot(slot_); !r)
			return r;
		open_ = true;
		return ok();
	}
	if (options_.decide && counters_.nr_prefilled) {
		const double rate = static_cast<double>(counters_.nr_prefilled) * 1e9 /
				    static_cast<double>(counters_.prefill_ns);
		if (!memory_.worth_fetching(slot_, nr_computed_, rate)) {
			counters_.nr_chosen++;
			return start_over();
		}
	}
	woken_at_ns_ = now_ns();
	Result<> woken = memory_.wake(slot_);
	if (woken || (woken.error().code != EBUSY && woken.error().code != EIO))
		return woken;
	woken_at_ns_ = 0;
	(woken.error().code == EIO ? counters_.nr_recomputed : counters_.nr_late)++;
	log_debug("{}: computing {} tokens again", woken.error().what, nr_computed_);
	return start_over();
}

/* The slot is empty, and compute() begins at the first token. */
Result<> Conversation::start_over()
{
	if (Result<> r = memory_.close_slot(slot_); !r)
		return r;
	nr_computed_ = 0;
	return memory_.open_slot(slot_);
}

Result<> Conversation::step(std::span<const uint8_t> tokens)
{
	tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
	if (Result<> r = lease(); !r)
		return r;
	compute();
	if (options_.prefixes && nr_steps_ == 1)
		options_.prefixes->store(tokens_, memory_.address(slot_));
	return memory_.unlease(slot_);
}

Result<> Conversation::lease()
{
	const auto nr = static_cast<uint32_t>(tokens_.size());
	Result<> leased = memory_.lease(slot_, nr);

	for (uint32_t i = 0; !leased && leased.error().code == EIO && i < max_recomputes; i++) {
		log_warning("{}: computing {} tokens again", leased.error().what, nr);
		if (Result<> r = start_over(); !r)
			return r;
		counters_.nr_recomputed++;
		leased = memory_.lease(slot_, nr);
	}
	if (leased && woken_at_ns_)
		counters_.wake_ns.push_back(now_ns() - std::exchange(woken_at_ns_, 0));
	return leased;
}

void Conversation::compute()
{
	if (options_.prefixes && !nr_computed_) {
		nr_computed_ = options_.prefixes->load(tokens_, memory_.address(slot_));
		counters_.nr_reused += nr_computed_;
	}
	const auto fresh = std::span(tokens_).subspan(nr_computed_);
	const bool scored = nr_steps_++ % options_.score_every == 0;
	const uint64_t start = now_ns();

	decoder_.forward(fresh, nr_computed_, memory_.address(slot_), scored ? &masses_ : nullptr);
	(fresh.size() == 1 ? counters_.decode_ns : counters_.prefill_ns) += now_ns() - start;
	(fresh.size() == 1 ? counters_.nr_decoded : counters_.nr_prefilled) += fresh.size();
	nr_computed_ = static_cast<uint32_t>(tokens_.size());
	if (scored)
		memory_.report(slot_, masses_);
	memory_.set_position(slot_, nr_computed_);
}

Result<std::vector<uint64_t>> Conversation::digest()
{
	if (!open_)
		return std::vector<uint64_t>();
	if (Result<> r = wake(); !r)
		return r.error();
	if (Result<> r = lease(); !r)
		return r.error();
	if (nr_computed_ < tokens_.size())
		compute();
	std::vector<uint64_t> hashes;
	const uint32_t nr_blocks = shape_.blocks_for(nr_computed_);
	for (uint32_t head = 0; head < shape_.heads; head++)
		for (uint32_t b = 0; b < nr_blocks; b++)
			hashes.push_back(hash(memory_.address(slot_) + shape_.block_offset(head, b),
					      shape_.block_bytes()));
	if (Result<> r = memory_.unlease(slot_); !r)
		return r.error();
	if (Result<> r = memory_.park(slot_); !r)
		return r.error();
	return hashes;
}

} // namespace cxlkv::engine
