/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who talks when: conversations take turns, each turn some text of the user
 * and a reply. Pure: the same options give the same turns.
 */
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cxlkv::engine {

struct WorkloadOptions {
	uint32_t conversations = 32;
	uint32_t rounds = 4;     /* turns of each conversation */
	uint32_t context = 2048; /* tokens; conversations end between half of it and all of it */
	uint32_t reply = 64;     /* tokens decoded in a turn */
	uint64_t seed = 1;
};

struct Turn {
	uint32_t conversation = 0;
	size_t text_offset = 0; /* of the user's text */
	uint32_t text_bytes = 0;
	uint32_t reply = 0;
};

/* Turns in the order they are served; every round has its own order. EINVAL where they do not fit.
 */
Result<std::vector<Turn>> plan_turns(const WorkloadOptions &options, size_t text_size);

} // namespace cxlkv::engine
