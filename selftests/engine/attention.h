/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Records the attention of a document as a trace for `cxl-kv sim`: int32
 * {0x4B564154, layers, kv_heads, steps, blocks, tokens_per_block}, then uint8
 * [layer][kv_head][step][block], mass = (q / 255)^2, mean over the query heads
 * of the group.
 */
#pragma once

#include "engine/model.h"
#include "engine/text.h"

#include <cstdint>
#include <string>

namespace cxlkv::engine {

struct AttentionOptions {
	size_t offset = 0; /* of the document in the text */
	uint32_t tokens = 2048;
	uint32_t tokens_per_block = 16;
};

Result<> record_attention(const AttentionOptions &options, const Model &model, const Text &text,
			  const std::string &path);

} // namespace cxlkv::engine
