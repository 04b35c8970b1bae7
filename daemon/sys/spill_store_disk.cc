/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_disk.h"

#include <isa-l/crc.h>

namespace cxlkv::disk {

namespace {

/* CRC of a page whose crc field, at that offset, counts as zero. */
uint32_t page_crc(const void *page, size_t crc_offset)
{
	const std::byte zero[4] = {};
	std::span<const std::byte> bytes(static_cast<const std::byte *>(page), kPage);
	uint32_t crc = crc32c(0, bytes.first(crc_offset));

	crc = crc32c(crc, zero);
	return crc32c(crc, bytes.subspan(crc_offset + sizeof(zero)));
}

} // namespace

uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes)
{
	/* ISA-L neither inverts at the start nor at the end, and takes a non-const pointer. */
	auto *data = reinterpret_cast<unsigned char *>(const_cast<std::byte *>(bytes.data()));

	return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~crc);
}

uint32_t block_crc(uint64_t arena, uint32_t block, uint32_t generation, uint64_t version,
		   std::span<const std::byte> bytes)
{
	struct {
		uint64_t arena, version;
		uint32_t block, generation;
	} name{arena, version, block, generation};

	return crc32c(crc32c(0, std::as_bytes(std::span(&name, 1))), bytes);
}

void seal(Superblock &super)
{
	super.crc = page_crc(&super, offsetof(Superblock, crc));
}

void seal(ExtentHeader &header)
{
	header.crc = page_crc(&header, offsetof(ExtentHeader, crc));
}

void seal(CheckpointHeader &header)
{
	header.crc = page_crc(&header, offsetof(CheckpointHeader, crc));
}

bool intact(const Superblock &super)
{
	return super.magic == kSuperMagic &&
	       super.crc == page_crc(&super, offsetof(Superblock, crc));
}

bool intact(const CheckpointHeader &h, const Superblock &super)
{
	return h.magic == kCheckpointMagic && h.store_id == super.store_id &&
	       h.crc == page_crc(&h, offsetof(CheckpointHeader, crc)) &&
	       h.payload_bytes <= super.checkpoint_bytes - kPage;
}

bool intact(const ExtentHeader &h, uint64_t store_id, uint64_t segment_bytes)
{
	if (h.magic != kExtentMagic || h.store_id != store_id || h.trailer > 1 || h.nr == 0)
		return false;
	switch (h.kind) {
	case Kind::Blocks:
		if (h.nr > kMaxBlocks || h.block_bytes == 0 || h.block_bytes % kPage ||
		    uint64_t{h.nr} * h.block_bytes > segment_bytes ||
		    h.first + (h.nr - 1u) < h.first)
			return false;
		break;
	case Kind::Tombstones:
		if (h.nr > kMaxTombstones)
			return false;
		break;
	default:
		return false;
	}
	if (h.offset % kPage || h.offset > segment_bytes ||
	    h.total_bytes() > segment_bytes - h.offset)
		return false;
	return h.crc == page_crc(&h, offsetof(ExtentHeader, crc));
}

} // namespace cxlkv::disk
