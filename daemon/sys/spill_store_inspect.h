/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A store that no daemon has open, looked at without changing it. */
#pragma once

#include "sys/spill_store_recovery.h"

#include <functional>
#include <string>
#include <vector>

namespace cxlkv {

struct StoreImage {
	StoreFile file;
	disk::Superblock super{};
	Recovered log;
	/* Copies of superblock and checkpoint that are damaged while the other serves. */
	std::vector<std::string> damaged_copies;
};

/* As the daemon would find it. EBUSY: a daemon has it; EBADMSG: it would start empty. */
Result<StoreImage> load_image(const std::string &path);

struct BadBlock {
	BlockKey key;
	uint64_t offset = 0; /* in the file */
	std::string why;
};

/* Reads every block that counts and verifies it; returns how many there are. */
uint64_t verify_blocks(const StoreImage &image, const std::function<void(const BadBlock &)> &bad);

/* Names an arena to people. Its key itself is a secret between its client and the daemon. */
uint32_t arena_label(uint64_t key);

} // namespace cxlkv
