/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One item of work of a client, from its ring to its result. */
#pragma once

#include "core/object_index.h"

#include <algorithm>
#include <cstdint>
#include <cxl_kv_shared.h>

namespace cxlkv {

inline ObjectKey key_of(const cxl_kv_item &item)
{
	ObjectKey key;

	std::copy_n(item.key, key.key.size(), key.key.begin());
	key.group = item.group;
	return key;
}

struct Work {
	uint64_t id = 0;
	uint64_t connection = 0;
	cxl_kv_lane_class lane = CXL_KV_LANE_CALL;
	cxl_kv_item item{};
	uint64_t object = 0; /* id of the one it is about, once that is known */
	bool holds = false;  /* leases on its chunks */
	uint64_t start_ns = 0;
	uint8_t tier = 0; /* where the object was when it began */

	/* What runs first: calls, which somebody waits for, then by priority, loads before stores.
	 */
	[[nodiscard]] uint32_t rank() const
	{
		if (lane == CXL_KV_LANE_CALL)
			return 0;
		return 1 + 2 * (255u - item.priority) + (lane == CXL_KV_LANE_STORE);
	}
};

} // namespace cxlkv
