/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Makes an .att file (att_trace.h) of masses that come step by step. */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cxlkv::sim {

class AttWriter {
public:
	AttWriter(uint32_t layers, uint32_t kv_heads, uint32_t tokens_per_block)
	    : layers_(layers), kv_heads_(kv_heads), tokens_per_block_(tokens_per_block)
	{
	}

	/* head: layer * KV heads + KV head. What lies outside the step's blocks, or the format's
	 * limits, is refused: false. */
	bool add(uint32_t step, uint32_t head, uint32_t block, float mass);

	/* Steps from 0 to the last that was added; those in between without any are zeros. */
	[[nodiscard]] uint32_t nr_steps() const { return steps_.empty() ? 0 : last_step() + 1; }
	[[nodiscard]] size_t nr_reported() const { return steps_.size(); }
	[[nodiscard]] uint64_t file_bytes() const;
	Result<> save(const std::string &path) const;

private:
	[[nodiscard]] uint32_t last_step() const { return steps_.rbegin()->first; }

	uint32_t layers_, kv_heads_, tokens_per_block_;
	std::map<uint32_t, std::vector<uint8_t>> steps_; /* [head][block up to the step's] */
};

} // namespace cxlkv::sim
