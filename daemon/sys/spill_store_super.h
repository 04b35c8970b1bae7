/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Superblock of one file of a store: read and judged, or made. */
#pragma once

#include "base/result.h"
#include "sys/spill_store_disk.h"
#include "sys/spill_store_file.h"

#include <optional>

namespace cxlkv {

/*
 * Nothing where the file is empty or blank. EINVAL: not ours, or damaged in both
 * copies; EPROTONOSUPPORT: a format that this release does not know.
 */
Result<std::optional<disk::Superblock>> load_super(const StoreFile &file);

/* A superblock for a file of that size and longest extent. Whether its segments fit is the caller's
 * to judge. */
disk::Superblock plan_super(uint64_t bytes, uint32_t extent_bytes);

/* Writes it twice, with a new identity, so that nothing in the file counts any more, and an empty
 * checkpoint. */
Result<> format(const StoreFile &file, disk::Superblock &super, uint64_t bytes);

/* Whole segments in so many bytes. */
uint32_t segments_in(uint64_t bytes, const disk::Superblock &super);

constexpr uint32_t kMinSegments = 8;

} // namespace cxlkv
