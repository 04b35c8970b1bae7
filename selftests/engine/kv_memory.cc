/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/kv_memory.h"

#include <fmt/format.h>

namespace cxlkv::engine {

Result<KvShape> KvShape::create(const ModelShape &model, uint32_t tokens_per_block,
				uint32_t max_tokens, KvType type)
{
	KvShape s{model.kv_heads_total(), model.layers, model.head_dim,
		  tokens_per_block,       max_tokens,   type};

	if (tokens_per_block < 1 || tokens_per_block > 65536 || max_tokens < 1 ||
	    max_tokens > 1u << 20 || max_tokens % tokens_per_block)
		return error(EINVAL,
			     fmt::format("a context of {} tokens is not whole blocks of {} tokens",
					 max_tokens, tokens_per_block));
	return s;
}

} // namespace cxlkv::engine
