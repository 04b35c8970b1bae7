/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the store writes to a device, and the checks that everything read from
 * one must pass. Little-endian. cxl-kv-store(5) explains the layout.
 *
 *   superblock, its copy | 2 x 2 checkpoints | segment 0 | segment 1 | ...
 *   checkpoint: header (4 KiB), payload
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
constexpr uint32_t kFormatVersion = 2;
constexpr uint64_t kSuperMagic = 0x3153564b4c584343; /* "CCXLKVS1" */
constexpr uint32_t kExtentMagic = 0x544e5458;        /* "XTNT" */

constexpr uint64_t kCheckpointMagic = 0x4b43485058434b58;
constexpr uint32_t kNrEnds = 2; /* segments that the log grows in at one time */

struct Superblock {
	uint64_t magic;
	uint32_t crc; /* CRC32C of the page with this field zero */
	uint32_t version;
	uint64_t store_id;       /* random; repeated in every header */
	uint64_t set_id;         /* random, the same in all files of a store */
	uint32_t file, nr_files; /* which of the store's files this is */
	uint64_t segment_bytes;
	uint64_t checkpoint_bytes; /* room of one checkpoint; four of them follow the superblocks */
	uint8_t zero[4040];

	[[nodiscard]] uint64_t log_offset() const { return 2 * kPage + 4 * checkpoint_bytes; }
	/* Checkpoint n lies in slot n % 2, twice. */
	[[nodiscard]] uint64_t checkpoint_offset(uint64_t number, uint32_t copy) const
	{
		return 2 * kPage + (number % 2 * 2 + copy) * checkpoint_bytes;
	}
	[[nodiscard]] uint64_t segment_offset(uint32_t segment) const
	{
		return log_offset() + segment * segment_bytes;
	}
};
static_assert(sizeof(Superblock) == kPage);

struct CheckpointHeader {
	uint64_t magic;
	uint32_t crc;
	uint32_t payload_crc;
	uint64_t store_id;
	uint64_t number;        /* counts up */
	uint64_t seq, version;  /* last extent and contents it knows */
	uint64_t payload_bytes; /* without the padding to whole pages */
	uint64_t in_flight_bytes;
	uint32_t nr_segments;
	uint32_t nr_free;               /* segments in the order they will be used */
	uint32_t open_segment[kNrEnds]; /* UINT32_MAX: none */
	uint32_t nr_used;               /* segment records */
	uint8_t zero[4012];
};
static_assert(sizeof(CheckpointHeader) == kPage);

/*
 * Payload: __u32 life of each segment; __u32 of each free segment; then each
 * segment in use: SegmentRecord, and its extents: ExtentRecord, __u32 CRC of each
 * block, one bit a block that is live (in whole __u32).
 */
constexpr uint32_t kUnwiped = 1u << 31; /* flag of a free segment */
constexpr uint32_t kEvacuate = 1u << 0; /* flag of a segment in use: to be emptied and wiped */
struct SegmentRecord {
	uint32_t segment, used_bytes, nr_extents, flags;
};
struct ExtentRecord {
	uint64_t arena, version;
	uint32_t first, generation, block_bytes, offset, nr, format;
};
static_assert(sizeof(SegmentRecord) == 16 && sizeof(ExtentRecord) == 40);

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
	uint64_t seq; /* order in the log */
	uint64_t
		completed; /* every extent up to this seq was written when this one was submitted */
	uint64_t version;  /* order of the contents; a moved extent keeps it */
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
	uint32_t format; /* of the blocks' bytes, 0 = as in memory; the store only keeps it */
	uint32_t zero[4];
	uint64_t checkpoint; /* the newest that was whole when this was written */
	union {
		uint32_t block_crc[kMaxBlocks];
		Tombstone tombstone[kMaxTombstones];
	};
	uint8_t pad[152];

	[[nodiscard]] uint32_t data_bytes() const
	{
		return kind == Kind::Blocks ? nr * block_bytes : 0;
	}
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
void seal(CheckpointHeader &header);
[[nodiscard]] bool intact(const Superblock &super);
[[nodiscard]] bool intact(const CheckpointHeader &header, const Superblock &super);
/* Also that every count and size in it is possible in a segment of that size. */
[[nodiscard]] bool intact(const ExtentHeader &header, uint64_t store_id, uint64_t segment_bytes);

} // namespace cxlkv::disk
