/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_recovery.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace cxlkv {

namespace {

constexpr uint64_t kChunkBytes = 1u << 20;

/*
 * Extents of a segment, by offset. Every page is looked at: an extent that was
 * never finished, or whose header is damaged, must not hide the ones behind it;
 * then the trailer serves. Pages inside an intact extent are skipped. Headers
 * left over from an earlier life of the segment do not count.
 */
class SegmentScan {
public:
	SegmentScan(const StoreFile &file, const disk::Superblock &super, uint32_t segment)
	    : file_(file), super_(super), segment_(segment), chunk_(aligned_buffer(kChunkBytes))
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
		std::erase_if(found_, [&](const auto &entry) { return entry.second.life != life_; });
		return std::move(found_);
	}

private:
	/* Enters the header at at_, if it is one; returns how far to go on. */
	uint64_t step()
	{
		if (!intact(header_, super_.store_id, super_.segment_bytes) || header_.segment != segment_)
			return disk::kPage;
		uint64_t trailer_at = uint64_t{header_.offset} + header_.total_bytes() - disk::kPage;
		if (at_ != (header_.trailer ? trailer_at : header_.offset))
			return disk::kPage;
		life_ = std::max(life_, header_.life);
		bool known = found_.contains(header_.offset) && found_[header_.offset].life >= header_.life;
		if (!known)
			found_[header_.offset] = header_;
		return header_.trailer ? disk::kPage : header_.total_bytes();
	}

	Result<const std::byte *> load(uint64_t at)
	{
		if (at < chunk_at_ || at >= chunk_at_ + chunk_bytes_) {
			chunk_at_ = at;
			chunk_bytes_ = std::min(kChunkBytes, super_.segment_bytes - at);
			uint64_t offset = super_.log_offset + segment_ * super_.segment_bytes + at;
			auto done = file_.read(offset, {chunk_.get(), chunk_bytes_});
			if (!done)
				return done.error();
		}
		return chunk_.get() + (at - chunk_at_);
	}

	const StoreFile &file_;
	const disk::Superblock &super_;
	uint32_t segment_;
	AlignedBuffer chunk_;
	uint64_t chunk_at_ = 0, chunk_bytes_ = 0, at_ = 0;
	uint32_t life_ = 0;
	disk::ExtentHeader header_;
	std::map<uint32_t, disk::ExtentHeader> found_;
};

void enter_blocks(const disk::ExtentHeader &header, SegmentTable &segments, StoreIndex &index)
{
	uint32_t slot = segments.add(header);

	for (uint32_t i = 0; i < header.nr; i++) {
		BlockKey key{header.arena, header.first + i};
		Location old = index.find(key);
		if (old && segments.extent(old).version > header.version)
			continue;
		if (old)
			segments.set_dead(old);
		Location location{header.segment, slot + i};
		segments.set_live(location);
		index.set(key, location);
	}
}

void apply(const disk::Tombstone &tombstone, SegmentTable &segments, StoreIndex &index)
{
	for (BlockKey key : index.keys(tombstone.arena, tombstone.first, tombstone.nr)) {
		Location location = index.find(key);
		if (segments.extent(location).version <= tombstone.version) {
			segments.set_dead(location);
			index.erase(key);
		}
	}
}

} // namespace

Result<Recovered> recover(const StoreFile &file, const disk::Superblock &super, SegmentTable &segments,
			  StoreIndex &index)
{
	Recovered result;
	std::vector<disk::Tombstone> tombstones;

	for (uint32_t i = 0; i < segments.size(); i++) {
		auto found = SegmentScan(file, super, i).run();
		if (!found)
			return found.error();
		for (auto &[offset, header] : *found) {
			result.seq = std::max(result.seq, header.seq);
			result.version = std::max(result.version, header.version);
			segments.at(i).life = header.life;
			segments.at(i).used_bytes = offset + header.total_bytes();
			if (header.kind == disk::Kind::Blocks) {
				enter_blocks(header, segments, index);
				continue;
			}
			segments.add(header);
			tombstones.insert(tombstones.end(), header.tombstone, header.tombstone + header.nr);
		}
	}
	for (const disk::Tombstone &tombstone : tombstones) {
		result.version = std::max(result.version, tombstone.version);
		apply(tombstone, segments, index);
	}
	result.nr_tombstones = tombstones.size();
	segments.free_unused();
	return result;
}

} // namespace cxlkv
