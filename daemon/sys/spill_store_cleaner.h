/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes free segments: moves what is live out of the emptiest ones to the end of
 * the log, one buffer at a time. A moved extent keeps its version, so that it can
 * never win over a newer record.
 */
#pragma once

#include "sys/spill_store_volume.h"

namespace cxlkv {

class StoreCleaner {
public:
	StoreCleaner(StoreVolume &volume, uint32_t buffer) : volume_(volume), buffer_(buffer) {}
	void pump();

private:
	/* Live blocks side by side in one extent, and where they are in the buffer. */
	struct Run {
		Location first; /* where they are now */
		ExtentEntry extent;
		uint32_t first_block = 0, nr = 0;
		uint32_t at = 0; /* of the new header in the buffer */
		std::vector<uint32_t> crc;
		bool bad = false;

		[[nodiscard]] uint32_t data_bytes() const { return nr * extent.block_bytes; }
		[[nodiscard]] uint32_t bytes() const { return data_bytes() + 2 * disk::kPage; }
	};

	[[nodiscard]] bool due() const;
	void gather(uint32_t victim);
	void read();
	void verify(Run &run, uint32_t bytes);
	void lose(Location location);
	void write();
	Location seal(const Run &run, SegmentTable::Place place);
	void move(const Run &run, Location to);
	void finish();

	StoreVolume &volume_;
	uint32_t buffer_;
	uint32_t victim_ = Location::kNone; /* pinned while a batch of it is in hand */
	std::vector<Run> runs_;
	size_t nr_reading_ = 0;
};

} // namespace cxlkv
