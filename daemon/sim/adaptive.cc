/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The default: core/prefix_cache.h behind the simulator's interface. */
#include "core/prefix_cache.h"
#include "sim/policies.h"

namespace cxlkv::sim {

namespace {

class Adaptive : public Cache {
public:
	explicit Adaptive(const CacheSetup &setup) : cache_(setup.capacity) {}

	[[nodiscard]] bool contains(uint32_t block) const override
	{
		return cache_.resident(block);
	}
	uint32_t serve(const Request &request) override
	{
		return cache_.use(request.blocks, request.time_ms);
	}

private:
	PrefixCache cache_;
};

} // namespace

std::unique_ptr<Cache> make_adaptive(const CacheSetup &setup)
{
	return std::make_unique<Adaptive>(setup);
}

} // namespace cxlkv::sim
