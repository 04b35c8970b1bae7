/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_scan.h"

#include <algorithm>
#include <cstring>

namespace cxlkv {

namespace {

/* Reads far ahead only while searching: from header to header the blocks between are not wanted. */
constexpr uint64_t kSearchBytes = 1u << 20;
constexpr uint64_t kStepBytes = 4 * disk::kPage;

class SegmentScan {
public:
	SegmentScan(const StoreFile &file, const disk::Superblock &super, uint32_t segment,
		    uint32_t from)
	    : file_(file), super_(super), segment_(segment), chunk_(aligned_buffer(kSearchBytes)),
	      at_(from)
	{
	}

	Result<std::map<uint32_t, disk::ExtentHeader>> run()
	{
		while (at_ < super_.segment_bytes) {
			auto page = load(at_);
			if (!page)
				return page.error();
			memcpy(&header_, *page, sizeof(header_));
			at_ += step();
		}
		return std::move(found_);
	}

private:
	/* Enters the header at at_, if it is one; returns how far to go on. */
	uint64_t step()
	{
		searching_ = true;
		if (!intact(header_, super_.store_id, super_.segment_bytes) ||
		    header_.segment != segment_)
			return disk::kPage;
		uint64_t trailer_at =
			uint64_t{header_.offset} + header_.total_bytes() - disk::kPage;
		if (at_ != (header_.trailer ? trailer_at : header_.offset))
			return disk::kPage;
		auto it = found_.find(header_.offset);
		if (it == found_.end() || it->second.seq < header_.seq)
			found_[header_.offset] = header_;
		searching_ = false;
		return header_.trailer ? disk::kPage : header_.total_bytes();
	}

	Result<const std::byte *> load(uint64_t at)
	{
		if (at < chunk_at_ || at >= chunk_at_ + chunk_bytes_) {
			chunk_at_ = at;
			chunk_bytes_ = std::min(searching_ ? kSearchBytes : kStepBytes,
						super_.segment_bytes - at);
			auto got = file_.read(super_.segment_offset(segment_) + at,
					      {chunk_.get(), chunk_bytes_});
			if (!got)
				return got.error();
		}
		return chunk_.get() + (at - chunk_at_);
	}

	const StoreFile &file_;
	const disk::Superblock &super_;
	uint32_t segment_;
	AlignedBuffer chunk_;
	uint64_t chunk_at_ = 0, chunk_bytes_ = 0, at_;
	bool searching_ = false;
	disk::ExtentHeader header_;
	std::map<uint32_t, disk::ExtentHeader> found_;
};

} // namespace

Result<std::map<uint32_t, disk::ExtentHeader>>
scan_segment(const StoreFile &file, const disk::Superblock &super, uint32_t segment, uint32_t from)
{
	return SegmentScan(file, super, segment, from).run();
}

} // namespace cxlkv
