/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Discards or overwrites free segments before they are used again, in their order, one at a time.
 */
#pragma once

#include "sys/spill_store_volume.h"

namespace cxlkv {

class StoreWiper {
public:
	StoreWiper(StoreVolume &volume, uint32_t buffer) : volume_(volume), buffer_(buffer) {}
	void pump();

private:
	void discard();
	void overwrite();
	void finish(int error);

	StoreVolume &volume_;
	uint32_t buffer_;
	uint32_t segment_ = Location::kNone;
	uint32_t written_ = 0; /* bytes of it overwritten */
};

} // namespace cxlkv
