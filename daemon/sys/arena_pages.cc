/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/arena_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace cxlkv {

namespace {

/*
 * A hole that the client punched is an error here, not a new page, and ends the
 * call: block by block then.
 */
void map_blocks(const Arena &arena, const std::vector<uint32_t> &blocks)
{
	const size_t bytes = arena.geometry.block_bytes;
	auto map = [&](uint32_t first, size_t nr) {
		return madvise(arena.base() + arena.offset(first), nr * bytes,
			       MADV_POPULATE_READ) == 0;
	};

	for (size_t i = 0, next; i < blocks.size(); i = next) {
		for (next = i + 1; next < blocks.size() && blocks[next] == blocks[next - 1] + 1;)
			next++;
		if (!map(blocks[i], next - i))
			for (; i < next; i++)
				map(blocks[i], 1);
	}
}

} // namespace

std::vector<void *> map_pages(const Arena &arena, const std::vector<uint32_t> &blocks)
{
	const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
	std::vector<void *> pages;

	map_blocks(arena, blocks);
	for (uint32_t block : blocks) {
		std::byte *at = arena.base() + arena.offset(block);
		for (size_t offset = 0; offset < arena.geometry.block_bytes; offset += page)
			pages.push_back(at + offset);
	}
	return pages;
}

} // namespace cxlkv
