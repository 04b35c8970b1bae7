/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_super.h"

#include "sys/spill_store_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <sys/random.h>

namespace cxlkv {

namespace {

constexpr uint64_t kMaxSegmentBytes = 64u << 20;

bool usable(const disk::Superblock &super)
{
	return super.segment_bytes % disk::kPage == 0 && super.segment_bytes >= 4 * disk::kPage &&
	       super.segment_bytes <= UINT32_MAX / 2 && super.checkpoint_bytes % disk::kPage == 0 &&
	       super.checkpoint_bytes >= 2 * disk::kPage && super.checkpoint_bytes <= 1ull << 40 &&
	       super.nr_files >= 1 && super.file < super.nr_files;
}

uint64_t whole_pages(uint64_t bytes)
{
	return bytes / disk::kPage * disk::kPage;
}

/* Header page, then payload, which is whole pages. */
Result<> write_checkpoint(const StoreFile &file, const EncodedCheckpoint &checkpoint,
			  uint64_t offset)
{
	AlignedBuffer bytes = aligned_buffer(disk::kPage + checkpoint.payload.size());

	memcpy(bytes.get(), &checkpoint.header, disk::kPage);
	memcpy(bytes.get() + disk::kPage, checkpoint.payload.data(), checkpoint.payload.size());
	return file.write(offset, {bytes.get(), disk::kPage + checkpoint.payload.size()});
}

} // namespace

Result<std::optional<disk::Superblock>> load_super(const StoreFile &file)
{
	AlignedBuffer pages = aligned_buffer(2 * disk::kPage);
	disk::Superblock super;

	if (file.size() == 0)
		return std::optional<disk::Superblock>();
	if (file.size() < 2 * disk::kPage)
		return error(EINVAL,
			     file.path() + ": not a spill store, and not empty; it is left alone");
	if (auto got = file.read(0, {pages.get(), 2 * disk::kPage}); !got)
		return got.error();
	auto *end = pages.get() + 2 * disk::kPage;
	if (std::all_of(pages.get(), end, [](std::byte b) { return b == std::byte{0}; }))
		return std::optional<disk::Superblock>();
	for (int copy = 0; copy < 2; copy++) {
		memcpy(&super, pages.get() + copy * disk::kPage, sizeof(super));
		if (!intact(super))
			continue;
		if (super.version != disk::kFormatVersion)
			return error(EPROTONOSUPPORT,
				     fmt::format("{}: a spill store of format {}, this release "
						 "knows {}; use the "
						 "release that made it, or remove it",
						 file.path(), super.version, disk::kFormatVersion));
		if (usable(super))
			return std::optional(super);
	}
	return error(EINVAL,
		     file.path() +
			     ": not a spill store, or its superblock is damaged; it is left alone "
			     "(remove it to start with an empty store)");
}

uint32_t segments_in(uint64_t bytes, const disk::Superblock &super)
{
	if (bytes <= super.log_offset())
		return 0;
	return static_cast<uint32_t>(
		std::min<uint64_t>((bytes - super.log_offset()) / super.segment_bytes, 1u << 24));
}

disk::Superblock plan_super(uint64_t bytes, uint32_t extent_bytes)
{
	disk::Superblock super{};
	uint64_t longest = uint64_t{extent_bytes} + 2 * disk::kPage;
	/* Small ones die as a whole more often; a whole number of the longest extents leaves no
	 * gap. */
	uint64_t wanted = std::min(bytes / 256, kMaxSegmentBytes) / longest * longest;

	super.magic = disk::kSuperMagic;
	super.version = disk::kFormatVersion;
	super.nr_files = 1;
	super.segment_bytes = std::max(wanted, 2 * longest);
	/* Enough for a table of 64 KiB blocks written one by one, many times over. */
	/*
	 * Room for a log of nothing but single blocks of a page: 48 bytes for each three
	 * pages. Where a checkpoint does not fit nothing more can be written.
	 */
	super.checkpoint_bytes = std::max<uint64_t>(whole_pages(bytes / 192), 16 * disk::kPage);
	return super;
}

Result<> format(const StoreFile &file, disk::Superblock &super, uint64_t bytes)
{
	AlignedBuffer page = aligned_buffer(disk::kPage);

	if (getrandom(&super.store_id, sizeof(super.store_id), 0) != sizeof(super.store_id))
		return sys_error("getrandom");
	SegmentTable table(segments_in(bytes, super), static_cast<uint32_t>(super.segment_bytes));
	table.settle();
	auto checkpoint = encode_checkpoint(super, table, LogPosition{});
	for (uint32_t copy = 0; copy < 2; copy++) {
		if (auto done =
			    write_checkpoint(file, checkpoint, super.checkpoint_offset(0, copy));
		    !done)
			return done;
	}
	if (auto done = file.flush(); !done)
		return done;
	disk::seal(super);
	memcpy(page.get(), &super, sizeof(super));
	for (uint64_t copy = 0; copy < 2; copy++) {
		if (auto done = file.write(copy * disk::kPage, {page.get(), disk::kPage}); !done)
			return done;
	}
	return file.flush();
}

} // namespace cxlkv
