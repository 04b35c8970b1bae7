/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One conversation: its bytes so far and its slot of KV memory. Blocks are
 * leased for a step and given back after it. KV that was lost is computed
 * again from the bytes, which gives the same KV (see kernels.h).
 */
#pragma once

#include "engine/decoder.h"
#include "engine/kv_memory.h"

#include <cstdint>
#include <span>
#include <vector>

namespace cxlkv::engine {

struct Counters {
	uint64_t nr_prefilled = 0, nr_decoded = 0; /* tokens; recomputed ones count as prefilled */
	uint64_t prefill_ns = 0, decode_ns = 0;    /* computing only */
	uint64_t nr_recomputed = 0;                /* conversations whose KV was lost */
	uint64_t nr_chosen = 0;                    /* ... whose KV was not worth fetching */
	std::vector<uint64_t> wake_ns;             /* from wake() to blocks leased */
};

class Conversation {
public:
	/* Scores are reported every score_every steps. decide: ask the memory whether its blocks
	 * are worth fetching. What is referred to must outlive this. */
	Conversation(uint32_t slot, const KvShape &shape, Decoder &decoder, KvMemory &memory,
		     Counters &counters, uint32_t score_every, bool decide = false);

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
	uint32_t score_every_;
	bool decide_;
	std::vector<uint8_t> tokens_;
	uint32_t nr_computed_ = 0; /* of these, whose K and V are in the slot */
	uint64_t nr_steps_ = 0;
	uint64_t woken_at_ns_ = 0; /* a wake whose blocks were not leased yet */
	bool open_ = false;
	Masses masses_;
};

} // namespace cxlkv::engine
