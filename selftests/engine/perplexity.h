/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a lossy format of the cold tier does to a real model: the held-out text
 * is read token by token, and each block of KV is encoded and decoded once it is
 * full, as if it had been spilled and restored before anything reads it again.
 */
#pragma once

#include "codec/codec.h"
#include "engine/model.h"
#include "engine/text.h"

#include <optional>
#include <vector>

namespace cxlkv::engine {

struct PerplexityOptions {
	uint32_t tokens = 16384; /* of the text, from its beginning */
	uint32_t context = 1024; /* the text is read in pieces of that many */
	uint32_t tokens_per_block = 128;
	std::optional<codec::Format> format; /* none: blocks stay as they are */
};

struct PerplexityResult {
	uint32_t nr_predicted = 0;
	double nats = 0;                      /* sum of -ln p of each token */
	std::vector<codec::ErrorStats> heads; /* head = layer * kv_heads + kv_head */

	[[nodiscard]] double perplexity() const;
	[[nodiscard]] double bits_per_byte() const;
	[[nodiscard]] codec::ErrorStats error() const; /* of all heads */
	[[nodiscard]] double worst_nmse() const;       /* of the head that lost most */
};

Result<PerplexityResult> measure_perplexity(const PerplexityOptions &options, const Model &model,
					    const Text &text);

} // namespace cxlkv::engine
