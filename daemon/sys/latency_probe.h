/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The latency of a node's memory at the moment: dependent loads in random order
 * over lines that are flushed from the caches before. About a millisecond a
 * measurement. Where the processor has no way to flush them, caches are measured.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace cxlkv {

class LatencyProbe {
public:
	/* ENOMEM where the node has no room for its 256 KiB. */
	static Result<LatencyProbe> create(int node);

	/* ns a load, of the quietest part of the measurement: load on the memory shows in every
	 * part, another thread on this CPU in some. 0: its pages are on another node now. */
	[[nodiscard]] double measure() const;

private:
	LatencyProbe(int node, Mapping memory) : node_(node), memory_(std::move(memory)) {}
	[[nodiscard]] bool is_on_node() const;

	int node_;
	Mapping memory_;
};

} // namespace cxlkv
