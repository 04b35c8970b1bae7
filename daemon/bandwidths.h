/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How fast KV comes back from each tier on this host: measured for a moment at
 * the daemon's start, then learnt from what really comes back. Any thread.
 */
#pragma once

#include "base/result.h"
#include "core/decide.h"
#include "core/transfer_model.h"

#include <cstdint>
#include <mutex>
#include <string>

namespace cxlkv {

class Bandwidths {
public:
	enum Way { WarmToHot, FromCold, ToCold, nr_ways };

	/* max_move_bytes_per_s: what the mover may use. */
	explicit Bandwidths(uint64_t max_move_bytes_per_s) : max_move_(max_move_bytes_per_s) {}

	/* From the file that `cxl-kv bench -o` wrote. ENOENT where there is none, EINVAL where it
	 * is none of bench. */
	Result<> read(const std::string &file);
	/*
	 * A fraction of a second of moves and of I/O beside the store's file. Says
	 * in the log what could not be measured: that way is learnt as it is used.
	 */
	void calibrate(int hot_node, int warm_node, const std::string &store_path);

	void add(Way way, uint64_t bytes, uint64_t ns);
	/* The way for so many bytes; queued_bytes are in front of them. */
	[[nodiscard]] FetchPart part(Way way, uint64_t bytes, uint64_t queued_bytes) const;
	/* For people: 0 = not known yet. */
	[[nodiscard]] double MBps(Way way) const;
	[[nodiscard]] uint64_t nr_transfers(Way way) const;

private:
	[[nodiscard]] double rate(Way way) const;

	mutable std::mutex mutex_;
	TransferModel models_[nr_ways];
	const uint64_t max_move_;
};

} // namespace cxlkv
