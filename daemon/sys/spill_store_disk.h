/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the store writes to a device, and the checks that everything read from
 * one must pass. Little-endian. See docs/cxl-kv-store.5 for the layout.
 *
 *   superblock, its copy | segment 0 | segment 1 | ...
 *   segment: extent, extent, ...
 *   extent:  header (4 KiB), blocks, trailer (the header again)
 */
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cxlkv::disk {

static_assert(std::endian::native == std::endian::little, "the format is the memory layout");

constexpr uint32_t kPage = 4096; /* unit of every I/O */
constexpr uint32_t kFormatVersion = 1;
constexpr uint64_t kSuperMagic = 0x3153564b4c584343; /* "CCXLKVS1" */
constexpr uint32_t kExtentMagic = 0x544e5458;        /* "XTNT" */

struct Superblock {
	uint64_t magic;
	uint32_t crc; /* CRC32C of the page with this field zero */
	uint32_t version;
	uint64_t store_id; /* random; repeated in every header */
	uint64_t segment_bytes;
	uint64_t log_offset; /* of segment 0 */
	uint8_t zero[4056];
};
static_assert(sizeof(Superblock) == kPage);

enum class Kind : uint8_t { Blocks = 1, Tombstones = 2 };

/* Records of blocks first .. first + nr of the arena that are not newer than version are gone. */
struct Tombstone {
	uint64_t arena;
	uint64_t version;
	uint32_t first;
	uint32_t nr; /* UINT32_MAX: the whole arena */
};
static_assert(sizeof(Tombstone) == 24);

constexpr uint32_t kMaxBlocks = 960;     /* of an extent */
constexpr uint32_t kMaxTombstones = 160; /* of an extent */

struct ExtentHeader {
	uint32_t magic;
	uint32_t crc; /* CRC32C of the page with this field zero */
	uint64_t store_id;
	uint64_t seq;       /* order in the log */
	uint64_t completed; /* every extent up to this seq was written when this one was submitted */
	uint64_t version;   /* order of the contents; a moved extent keeps it */
	uint64_t arena;
	uint32_t segment;
	uint32_t offset; /* in the segment, bytes */
	uint32_t life;   /* how often the segment was opened */
	uint32_t first;
	uint32_t generation;
	uint32_t block_bytes;
	uint16_t nr; /* blocks, or tombstones */
	Kind kind;
	uint8_t trailer; /* 1 in the copy behind the blocks */
	uint32_t next_segment;
	uint32_t zero[6];
	union {
		uint32_t block_crc[kMaxBlocks];
		Tombstone tombstone[kMaxTombstones];
	};
	uint8_t pad[152];

	[[nodiscard]] uint32_t data_bytes() const { return kind == Kind::Blocks ? nr * block_bytes : 0; }
	[[nodiscard]] uint32_t total_bytes() const { return data_bytes() + 2 * kPage; }
};
static_assert(sizeof(ExtentHeader) == kPage);

/* CRC-32C (Castagnoli) as iSCSI and ext4 count it; crc is the value so far, 0 at first. */
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes);

/* Checksum of a block: covers its name too, so that a block in another's place fails. */
uint32_t block_crc(uint64_t arena, uint32_t block, uint32_t generation, uint64_t version,
		   std::span<const std::byte> bytes);

void seal(Superblock &super);
void seal(ExtentHeader &header);
[[nodiscard]] bool intact(const Superblock &super);
/* Also that every count and size in it is possible in a segment of that size. */
[[nodiscard]] bool intact(const ExtentHeader &header, uint64_t store_id, uint64_t segment_bytes);

} // namespace cxlkv::disk
