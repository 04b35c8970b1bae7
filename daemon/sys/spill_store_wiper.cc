/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_wiper.h"

#include <cstring>
#include <utility>

namespace cxlkv {

void StoreWiper::pump()
{
	using Wipe = StoreOptions::Wipe;

	if (segment_ != Location::kNone || volume_.options.wipe == Wipe::None)
		return;
	segment_ = volume_.segments.next_unwiped();
	if (segment_ == Location::kNone)
		return;
	written_ = 0;
	/* A hole punched into a file leaves the bytes on the device below: only a device can be
	 * trusted with it. */
	if (volume_.options.wipe == Wipe::Discard || volume_.file.is_device())
		discard();
	else
		overwrite();
}

void StoreWiper::discard()
{
	IoRequest request{IoRequest::Op::Discard,
			  volume_.file_index,
			  0,
			  nullptr,
			  volume_.segments.segment_bytes(),
			  volume_.super.segment_offset(segment_),
			  0};

	volume_.queue->submit(request, [this](int error, uint32_t) {
		if (error && volume_.options.wipe == StoreOptions::Wipe::Secure)
			overwrite();
		else
			finish(0); /* where discarding is only advice, its failure is no reason to
				      stop */
	});
}

void StoreWiper::overwrite()
{
	auto left = volume_.segments.segment_bytes() - written_;
	auto bytes = static_cast<uint32_t>(std::min<size_t>(left, volume_.queue->buffer_bytes()));
	IoRequest request{IoRequest::Op::Write,
			  volume_.file_index,
			  buffer_,
			  volume_.queue->buffer(buffer_),
			  bytes,
			  volume_.super.segment_offset(segment_) + written_,
			  0};

	memset(volume_.queue->buffer(buffer_), 0, bytes);
	volume_.queue->submit(request, [this](int error, uint32_t done) {
		volume_.stats.written_bytes += done;
		written_ += done;
		if (!error && written_ < volume_.segments.segment_bytes())
			overwrite();
		else
			finish(error);
	});
}

void StoreWiper::finish(int error)
{
	uint32_t segment = std::exchange(segment_, Location::kNone);

	/* After an error it stays unwiped, and unused, until there is something else to poll for.
	 */
	if (error) {
		volume_.complain("wipe", error);
		return;
	}
	volume_.segments.wiped(segment);
	volume_.queue->wake();
}

} // namespace cxlkv
