/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "sys/spill_store.h"

namespace cxlkv {

/* A bounce buffer for work that can wait: the last one is left for a thread that is blocked in a
 * fault. */
inline Bounce take_spare_buffer(SpillStore &store)
{
	Bounce buffer = store.take_buffer();
	if (!buffer.data)
		return buffer;
	Bounce last = store.take_buffer();
	if (!last.data) {
		store.give_buffer(buffer);
		return last;
	}
	store.give_buffer(last);
	return buffer;
}

} // namespace cxlkv
