/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What must be true of the files a client hands over before any of them is mapped or read. */
#pragma once

#include "sys/arena.h"

namespace cxlkv {

uint64_t ring_bytes(uint32_t entries);

/* Kind, seals and size of every file, the client's address and the ring's size. */
Result<> check_arena_files(const Geometry &geometry, const ArenaFiles &files,
			   const ArenaOptions &options);

} // namespace cxlkv
