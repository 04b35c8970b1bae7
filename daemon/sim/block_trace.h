/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A trace of requests, each the list of prefix blocks it needs: Mooncake JSONL
 * (`timestamp`, `hash_ids`), or lines `t_ms id id ...`. Plain or .xz.
 */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cxlkv::sim {

struct Request {
	uint64_t time_ms;
	uint32_t number;                  /* of the request */
	uint64_t first;                   /* number of its first access in the trace */
	std::span<const uint32_t> blocks; /* in prefix order */
};

/* Block ids are made dense in the order of their first appearance. */
class BlockTrace {
public:
	void add(uint64_t time_ms, const std::vector<uint32_t> &blocks);

	[[nodiscard]] uint32_t nr_requests() const { return static_cast<uint32_t>(times_.size()); }
	[[nodiscard]] uint64_t nr_accesses() const { return blocks_.size(); }
	[[nodiscard]] uint32_t nr_unique() const { return nr_unique_; }
	[[nodiscard]] Request request(uint32_t i) const
	{
		uint64_t first = ends_[i];
		return {times_[i],
			i,
			first,
			{blocks_.data() + first, blocks_.data() + ends_[i + 1]}};
	}
	[[nodiscard]] const std::vector<uint32_t> &accesses() const { return blocks_; }

private:
	std::vector<uint64_t> times_, ends_{0};
	std::vector<uint32_t> blocks_;
	uint32_t nr_unique_ = 0;
};

Result<BlockTrace> parse_block_trace(const std::string &text);

} // namespace cxlkv::sim
