/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where the engine's KV cache lies. The seam has two sides: plain memory (the
 * reference run) and an arena of libcxl_kv. A slot holds one conversation as
 * a contiguous range [head][block], head = layer * kv_heads + kv_head; a block
 * is K [T][D], then V [T][D].
 */
#pragma once

#include "base/result.h"
#include "engine/model.h"

#include <cstddef>
#include <cstdint>
#include <cxl_kv.h>
#include <memory>
#include <string>
#include <vector>

namespace cxlkv::engine {

struct KvShape {
	uint32_t heads = 0; /* layers * kv_heads */
	uint32_t layers = 0;
	uint32_t head_dim = 0;
	uint32_t tokens_per_block = 0;
	uint32_t max_tokens = 0; /* of one slot, a multiple of tokens_per_block */
	KvType type = KvType::F16;

	/* EINVAL with what is wrong. */
	static Result<KvShape> create(const ModelShape &model, uint32_t tokens_per_block,
				      uint32_t max_tokens, KvType type);

	[[nodiscard]] uint32_t block_bytes() const
	{
		return static_cast<uint32_t>(2 * tokens_per_block * head_dim * elem_bytes(type));
	}
	[[nodiscard]] uint32_t blocks_per_head() const { return max_tokens / tokens_per_block; }
	[[nodiscard]] size_t slot_bytes() const
	{
		return size_t{heads} * blocks_per_head() * block_bytes();
	}
	/* Blocks of one head that hold the first tokens. */
	[[nodiscard]] uint32_t blocks_for(uint32_t tokens) const
	{
		return (tokens + tokens_per_block - 1) / tokens_per_block;
	}
	[[nodiscard]] size_t block_offset(uint32_t head, uint32_t block) const
	{
		return (size_t{head} * blocks_per_head() + block) * block_bytes();
	}
};

/* Attention mass of one position: [head][block of tokens_per_block], each head sums to one. */
struct Masses {
	uint32_t nr_blocks = 0;
	std::vector<float> mass;

	[[nodiscard]] const float *head(uint32_t h) const
	{
		return mass.data() + size_t{h} * nr_blocks;
	}
};

/* What the tiers cost and gave; all zero for plain memory. */
struct KvStats {
	uint64_t nr_leases = 0;                     /* calls */
	uint64_t nr_leased_blocks = 0, nr_hits = 0; /* hit: resident when it was leased */
	uint64_t nr_hints_dropped = 0;              /* the ring was full */
};

class KvMemory {
public:
	virtual ~KvMemory() = default;

	virtual Result<> open_slot(uint32_t slot) = 0;
	/* Forget the slot's contents; it is closed. */
	virtual Result<> close_slot(uint32_t slot) = 0;

	/*
	 * The blocks for the first tokens of the slot exist (new ones are zero)
	 * and stay until unlease(). EIO: a block is lost, close the slot and
	 * compute it again; EBUSY: no room within the deadline.
	 */
	virtual Result<> lease(uint32_t slot, uint32_t tokens) = 0;
	virtual Result<> unlease(uint32_t slot) = 0;
	/* First byte of the slot. */
	virtual std::byte *address(uint32_t slot) = 0;

	/* Hints: the mass of the last position, how far the slot is, blocks that will not change.
	 */
	virtual void report(uint32_t slot, const Masses &masses) = 0;
	virtual void set_position(uint32_t slot, uint32_t tokens) = 0;

	virtual Result<> park(uint32_t slot) = 0;
	/* The slot's blocks are back. EIO: some are lost, EBUSY: not back within the deadline. */
	virtual Result<> wake(uint32_t slot) = 0;

	/* The slot's blocks come back sooner than its tokens are computed at that rate. */
	virtual bool worth_fetching(uint32_t slot, uint32_t tokens,
				    double prefill_tokens_per_s) = 0;

	[[nodiscard]] virtual const KvStats &stats() const = 0;
};

std::unique_ptr<KvMemory> make_plain_memory(const KvShape &shape, uint32_t nr_slots);

struct ArenaSettings {
	std::string socket;               /* empty: the library's default */
	uint32_t deadline_ms = 30000;     /* how long make and lease wait for room */
	uint32_t wake_deadline_ms = 5000; /* how long a wake may take */
	cxl_kv_cold_format cold_format = CXL_KV_COLD_DEFAULT;
};
/* Of an arena with a slot of this shape for each conversation. */
cxl_kv_geometry arena_geometry(const KvShape &shape, uint32_t nr_slots);

Result<std::unique_ptr<KvMemory>> make_arena_memory(const KvShape &shape, uint32_t nr_slots,
						    const ArenaSettings &settings);

} // namespace cxlkv::engine
