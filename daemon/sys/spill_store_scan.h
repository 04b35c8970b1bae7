/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The extents that lie in a segment, by their headers on the device. */
#pragma once

#include "base/result.h"
#include "sys/spill_store_disk.h"
#include "sys/spill_store_file.h"

#include <map>

namespace cxlkv {

/*
 * Intact headers from offset `from` on, by offset. Every page is looked at: an
 * extent that was never finished, or whose header is damaged, must not hide the
 * ones behind it; where the header is damaged, the trailer serves. Pages inside
 * an intact extent are skipped.
 */
Result<std::map<uint32_t, disk::ExtentHeader>>
scan_segment(const StoreFile &file, const disk::Superblock &super, uint32_t segment, uint32_t from);

} // namespace cxlkv
