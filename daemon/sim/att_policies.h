/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Policies for attention traces. The baselines are scores: after a step has
 * fetched what it needed, the resident blocks of the lowest score leave until
 * the rest fits. The policy of the daemon runs as it is (att_core.h).
 */
#pragma once

#include "sim/att_replay.h"

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace cxlkv::sim {

/* Of blocks that compete, in one array; block b of head h of the group is h * blocks + b. */
class AttScore {
public:
	virtual ~AttScore() = default;
	/* One step: the mass of each block, and those that were accessed. */
	virtual void step(uint32_t step, std::span<const float> mass,
			  std::span<const uint32_t> accessed) = 0;
	/* After that step; the lowest leaves. */
	[[nodiscard]] virtual double score(uint32_t block) const = 0;
};

struct AttGroup {
	uint32_t nr_blocks; /* of all heads of the group */
	uint32_t per_head;
	uint32_t tokens_per_block;
	uint32_t budget; /* of a head, blocks */
	/* Step of the first access of a block after a step; only OPT gets it. */
	std::function<uint32_t(uint32_t block, uint32_t step)> next_access;
};

/* Whose blocks compete for room. */
enum class Sharing : uint8_t {
	Layer, /* one cache, whose blocks hold a token of all heads of the layer */
	Head,  /* a budget for each head */
	Pool,  /* the heads of a layer share theirs */
	Core,  /* the daemon's policy with the preset of this name: all heads of all layers */
};

struct AttPolicy {
	const char *name;
	const char *help;
	Sharing sharing;
	uint32_t anchors; /* first blocks of each head that never leave */
	bool online;      /* false: it knows the future */
	std::unique_ptr<AttScore> (*make)(const AttGroup &group);
	/* Share of the mean budget that a layer gets; nullptr: all get 1. */
	double (*layer_share)(uint32_t layer, uint32_t nr_layers);
	/* Blocks on either side of an access that are fetched with it. */
	uint32_t prefetch = 0;
};

const std::vector<AttPolicy> &att_policies();
/* The paper's ladder: each rung added alone to LRU, each removed alone from all. */
const std::vector<AttPolicy> &att_ladder();
/* nullptr where there is none of that name. */
const AttPolicy *find_att_policy(std::string_view name);

} // namespace cxlkv::sim
