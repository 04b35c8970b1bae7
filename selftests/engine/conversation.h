/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One conversation: its bytes so far and its slot of KV memory. Blocks are
 * leased for a step and given back after it. KV that was lost, or is not back
 * in time, is computed again from the bytes, which gives the same KV (see
 * kernels.h); so does what another conversation computed for the same bytes.
 */
#pragma once

#include "engine/decoder.h"
#include "engine/kv_memory.h"
#include "engine/prefix_store.h"

#include <cstdint>
#include <span>
#include <vector>

namespace cxlkv::engine {

struct Counters {
	uint64_t nr_prefilled = 0, nr_decoded = 0; /* tokens; recomputed ones count as prefilled */
	uint64_t prefill_ns = 0, decode_ns = 0;    /* computing only */
	uint64_t nr_reused = 0;                    /* tokens whose KV others had stored */
	uint64_t nr_recomputed = 0;                /* conversations whose KV was lost */
	uint64_t nr_late = 0;                      /* ... did not come by the deadline */
	uint64_t nr_chosen = 0;                    /* ... was not worth fetching */
	std::vector<uint64_t> wake_ns;             /* from wake() to blocks leased */
};

struct ConversationOptions {
	uint32_t score_every = 1;        /* steps from one report of attention to the next */
	bool decide = false;             /* ask the memory whether its blocks are worth fetching */
	PrefixStore *prefixes = nullptr; /* of first turns, for who begins in the same way */
};

class Conversation {
public:
	/* What is referred to must outlive this. */
	Conversation(uint32_t slot, const KvShape &shape, Decoder &decoder, KvMemory &memory,
		     Counters &counters, const ConversationOptions &options);

	/* The user's text, then n bytes of reply, then idle. */
	Result<> turn(std::span<const uint8_t> text, uint32_t reply);

	/* One hash a block, [head][block], over the blocks as they are in memory now. */
	Result<std::vector<uint64_t>> digest();

	[[nodiscard]] const std::vector<uint8_t> &tokens() const { return tokens_; }

private:
	Result<> wake();
	Result<> step(std::span<const uint8_t> tokens);
	Result<> lease();
	Result<> start_over();
	void compute();

	uint32_t slot_;
	KvShape shape_;
	Decoder &decoder_;
	KvMemory &memory_;
	Counters &counters_;
	ConversationOptions options_;
	std::vector<uint8_t> tokens_;
	uint32_t nr_computed_ = 0; /* of these, whose K and V are in the slot */
	uint64_t nr_steps_ = 0;
	uint64_t woken_at_ns_ = 0; /* a wake whose blocks were not leased yet */
	bool open_ = false;
	Masses masses_;
};

} // namespace cxlkv::engine
