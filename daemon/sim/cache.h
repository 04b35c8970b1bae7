/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What every replacement policy of the simulator is to the replay of a block trace. */
#pragma once

#include "sim/block_trace.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace cxlkv::sim {

class Cache {
public:
	virtual ~Cache() = default;
	[[nodiscard]] virtual bool contains(uint32_t block) const = 0;
	/* All blocks of the request are needed, and kept as far as the policy likes. Returns block
	 * hits. */
	virtual uint32_t serve(const Request &request) = 0;
};

/* One block after the other; with leaf_first the request is touched again from its tail to its
 * head. */
class BlockwiseCache : public Cache {
public:
	explicit BlockwiseCache(bool leaf_first = false) : leaf_first_(leaf_first) {}

	uint32_t serve(const Request &request) override
	{
		uint32_t hits = 0;
		for (uint32_t i = 0; i < request.blocks.size(); i++)
			hits += access(request.blocks[i], i, request);
		for (size_t i = request.blocks.size(); leaf_first_ && i-- > 0;)
			touch(request.blocks[i]);
		return hits;
	}

protected:
	/* true on a hit; position of the block in its request. */
	virtual bool access(uint32_t block, uint32_t position, const Request &request) = 0;
	/* Makes a resident block the youngest of its kind; that is no use of it. */
	virtual void touch(uint32_t) {}

private:
	bool leaf_first_;
};

} // namespace cxlkv::sim
