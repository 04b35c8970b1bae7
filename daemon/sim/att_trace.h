/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * .att: attention of one sequence, as written by an engine. Six int32, little
 * endian: magic 0x4B564154, layers, KV heads, steps, blocks, tokens per block;
 * then a byte for each [layer][KV head][step][block]. (byte/255)^2 is the
 * attention of the step on the block, mean over the query heads of the group.
 */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <span>
#include <string>

namespace cxlkv::sim {

class AttTrace {
public:
	static constexpr uint32_t magic = 0x4B564154, max_steps = 1 << 24;
	static constexpr size_t header_bytes = 24;

	static Result<AttTrace> parse(std::string bytes);

	uint32_t layers = 0, kv_heads = 0, steps = 0, blocks = 0, tokens_per_block = 0;

	[[nodiscard]] std::span<const uint8_t> row(uint32_t layer, uint32_t kv_head,
						   uint32_t step) const
	{
		size_t at = (size_t{layer * kv_heads + kv_head} * steps + step) * blocks;
		return {reinterpret_cast<const uint8_t *>(bytes_.data()) + header_bytes + at,
			blocks};
	}
	/* The block that the step writes. */
	[[nodiscard]] uint32_t current(uint32_t step) const { return step / tokens_per_block; }

	static float mass(uint8_t byte)
	{
		float root = static_cast<float>(byte) / 255;
		return root * root;
	}
	/* Does the file look like one? */
	static bool is_att(const std::string &bytes);

private:
	std::string bytes_;
};

} // namespace cxlkv::sim
