/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which of a tier's nodes takes the next move: each gets its share by weight
 * (core/spread.h), as far as it has room and, a hot one, is faster than warm at
 * the moment. The mover's thread only.
 */
#pragma once

#include "core/spread.h"
#include "latency_thread.h"
#include "tiers.h"

namespace cxlkv {

class NodeSpread {
public:
	NodeSpread(const Tiers &tiers, const LatencyThread &latency);

	int next(bool up, uint64_t bytes);

private:
	const Tiers &tiers_;
	const LatencyThread &latency_;
	Spread hot_, warm_;
};

} // namespace cxlkv
