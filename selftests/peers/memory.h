/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The memory that a pattern reads: a plain private mapping, for those who tier
 * whatever a process has, or an arena of libcxl_kv, with or without hints.
 */
#pragma once

#include "base/result.h"
#include "peers/patterns.h"

#include <cstddef>
#include <memory>

namespace cxlkv::peers {

class Memory {
public:
	virtual ~Memory() = default;
	/* Room for the blocks, to be written: nothing is said about their bytes. */
	virtual Result<> make(const Run &run) = 0;
	/* What an engine knows, where the memory takes hints. */
	virtual void begin(const Interval &) {}
	virtual void step(const Interval &, const uint32_t *, size_t) {}

	[[nodiscard]] std::byte *base() const { return base_; }

protected:
	std::byte *base_ = nullptr;
};

enum class Kind { Plain, Arena, Hints };

Result<std::unique_ptr<Memory>> make_memory(Kind kind, const Shape &shape);

} // namespace cxlkv::peers
