/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which of a tier's nodes takes the next move: each gets its share by weight
 * (core/spread.h), as far as it has room. The mover's thread only.
 */
#pragma once

#include "core/spread.h"
#include "tiers.h"

namespace cxlkv {

class NodeSpread {
public:
	explicit NodeSpread(const Tiers &tiers);

	int next(bool up, uint64_t bytes);

private:
	const Tiers &tiers_;
	Spread hot_, warm_;
};

} // namespace cxlkv
