/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pages of blocks as move_pages wants them. */
#pragma once

#include "sys/arena.h"

#include <cstdint>
#include <vector>

namespace cxlkv {

/*
 * The addresses of all pages of these blocks in our mapping, in order, and each page
 * that is there in our page table, or move_pages answers ENOENT.
 */
std::vector<void *> map_pages(const Arena &arena, const std::vector<uint32_t> &blocks);

} // namespace cxlkv
