/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What counts as an access of a head to a block in an attention trace. A hit rate means nothing
 * without it. */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cxlkv::sim {

struct Access {
	uint32_t top = 0;        /* the k blocks of the highest mass; 0: by threshold */
	float threshold = 0.01f; /* mass above it */

	/* "top:8", "thr:0.01" */
	static Result<Access> parse(std::string_view text);

	/* Blocks among the first nr_visible of a row of the trace, ascending where by threshold. */
	void pick(std::span<const uint8_t> row, uint32_t nr_visible,
		  std::vector<uint32_t> &blocks) const;
};

} // namespace cxlkv::sim
