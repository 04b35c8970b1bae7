/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * KV of beginnings that conversations share, as objects of libcxl_kv. An object
 * is one block of tokens of every head; its key says all tokens up to its end.
 */
#pragma once

#include "engine/kv_memory.h"

#include <span>

namespace cxlkv::engine {

struct PrefixStats {
	uint64_t nr_lookups = 0, nr_found = 0; /* beginnings; found: at least a block */
	uint64_t nr_loaded = 0, nr_stored = 0; /* blocks of tokens */
	uint64_t nr_failed = 0;                /* ... whose load or store did not go well */
};

class PrefixStore {
public:
	virtual ~PrefixStore() = default;

	/*
	 * Loads the longest beginning that is there to the slot at kv, whose blocks are
	 * leased, and answers its tokens: whole blocks, and not the last token of all,
	 * whose logits are wanted. What cannot be had in time is not loaded.
	 */
	virtual uint32_t load(std::span<const uint8_t> tokens, std::byte *kv) = 0;
	/* Stores the whole blocks that nobody has stored. One that fails is not kept. */
	virtual void store(std::span<const uint8_t> tokens, const std::byte *kv) = 0;

	[[nodiscard]] virtual const PrefixStats &stats() const = 0;
};

/* socket: empty for the library's default. ESTALE: others keep KV of another model there. */
Result<std::unique_ptr<PrefixStore>> open_prefix_store(const Model &model, const KvShape &shape,
						       const std::string &socket);

} // namespace cxlkv::engine
