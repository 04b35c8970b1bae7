/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a run said and what its KV cache held at the end, in a file, so that two runs can be
 * compared. */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cxlkv::engine {

struct Record {
	std::vector<uint8_t> tokens;
	std::vector<uint64_t> kv; /* a hash for each block, [head][block] */
};

/* One record a conversation. One line each: {"tokens": "hex", "kv": ["hex", ...]} */
Result<> write_transcript(const std::string &path, const std::vector<Record> &records);
Result<std::vector<Record>> read_transcript(const std::string &path);

struct Comparison {
	uint32_t nr = 0; /* conversations */
	uint32_t nr_tokens_identical = 0, nr_kv_identical = 0;
	std::vector<std::string> differences; /* the first one of each conversation, in words */

	[[nodiscard]] bool identical() const
	{
		return nr && nr_tokens_identical == nr && nr_kv_identical == nr;
	}
};

Comparison compare(const std::vector<Record> &a, const std::vector<Record> &b);

} // namespace cxlkv::engine
