/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_inspect.h"

#include "sys/spill_store_super.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cxlkv {

namespace {

/* The copies that recovery did not need are looked at too: the next fault may hit the other. */
std::vector<std::string> check_copies(const StoreFile &file, const disk::Superblock &super,
				      uint64_t newest)
{
	std::vector<std::string> damaged;
	AlignedBuffer page = aligned_buffer(disk::kPage);

	for (uint32_t copy = 0; copy < 2; copy++) {
		disk::Superblock one{};
		if (file.read(copy * disk::kPage, {page.get(), disk::kPage}))
			memcpy(&one, page.get(), sizeof(one));
		if (!intact(one))
			damaged.push_back(fmt::format("superblock {}", copy));
	}
	for (uint32_t copy = 0; copy < 2; copy++) {
		if (!checkpoint_copy_is_whole(file, super, newest, copy))
			damaged.push_back(fmt::format("checkpoint {}, copy {}", newest, copy));
	}
	return damaged;
}

} // namespace

Result<StoreImage> load_image(const std::string &path)
{
	auto file = StoreFile::open_readonly(path);
	if (!file)
		return file.error();
	auto super = load_super(*file);
	if (!super)
		return super.error();
	if (!*super)
		return error(ENODATA, path + ": empty, no store was made here yet");
	StoreImage image;
	image.file = std::move(*file);
	image.super = **super;
	uint32_t nr_segments = segments_in(image.file.size(), image.super);
	auto log = recover(image.file, image.super, nr_segments, nr_segments);
	if (!log)
		return log.error().in(path);
	image.log = std::move(*log);
	image.damaged_copies = check_copies(image.file, image.super, image.log.position.checkpoint);
	return image;
}

uint64_t verify_blocks(const StoreImage &image, const std::function<void(const BadBlock &)> &bad)
{
	uint64_t nr = 0;
	uint32_t largest = std::max(image.log.table.largest_block(), disk::kPage);
	AlignedBuffer buffer = aligned_buffer(largest);

	for (uint32_t number = 0; number < image.log.table.size(); number++) {
		const Segment &segment = image.log.table.at(number);
		for (uint32_t slot = 0; slot < segment.blocks.size(); slot++) {
			const BlockEntry &block = segment.blocks[slot];
			if (!block.live)
				continue;
			const ExtentEntry &e = segment.extents[block.extent];
			BlockKey key = image.log.table.key({number, slot});
			uint64_t offset = image.super.segment_offset(number) + e.offset +
					  disk::kPage +
					  uint64_t{slot - e.first_slot} * e.block_bytes;
			std::span<std::byte> bytes(buffer.get(), e.block_bytes);
			auto got = image.file.read(offset, bytes);
			nr++;
			if (!got)
				bad({key, offset, got.error().what});
			else if (disk::block_crc(e.arena, key.block, e.generation, e.version,
						 bytes) != block.crc)
				bad({key, offset, "checksum"});
		}
	}
	return nr;
}

uint32_t arena_label(uint64_t key)
{
	return disk::crc32c(0, std::as_bytes(std::span(&key, 1)));
}

} // namespace cxlkv
