/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a restart needs to know of keyed objects: which key's bytes lie in which
 * chunks, beside the spill store that has the bytes. Written whole, under a
 * checksum; replaced at once or not at all. Readable by the daemon only: it
 * holds the tenants' salts.
 */
#pragma once

#include "sys/object_space.h"

#include <array>
#include <cxl_kv_shared.h>

namespace cxlkv {

struct SavedObjects {
	struct Space {
		SpaceSpec spec;
		uint64_t quota_bytes = 0; /* of its tenant */
	};
	struct Chunk {
		uint32_t block;
		uint64_t checksum;
	};
	struct Object {
		uint32_t space; /* index of spaces */
		std::array<uint64_t, CXL_KV_SHARED_KEY_BYTES / 8> key;
		uint32_t group, bytes;
		uint8_t priority;
		std::vector<Chunk> chunks;
	};

	uint32_t chunk_bytes = 0, nr_chunks = 0;
	std::vector<Space> spaces;
	std::vector<Object> objects;
};

[[nodiscard]] Result<> save_objects(const std::string &path, const SavedObjects &saved);
/* ENOENT there is none; EBADMSG it is not what save_objects() wrote. */
[[nodiscard]] Result<SavedObjects> load_objects(const std::string &path);

} // namespace cxlkv
