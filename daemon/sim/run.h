/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Policies times capacities over a trace. */
#pragma once

#include "core/model.h"
#include "sim/att_policies.h"
#include "sim/block_trace.h"
#include "sim/policies.h"
#include "sim/result.h"

#include <functional>
#include <optional>

namespace cxlkv::sim {

struct ThreeTiers {
	double warm_ratio = 4; /* capacity of the warm tier in units of the hot one */
	LatencyModel latency;
	bool paper_split =
		true; /* the paper's 9:1 of warm and cold; else what a warm tier would hold */
};

/* Share of the work that is done, 0..1. */
using Progress = std::function<void(double)>;

SimResult run_blocks(const BlockTrace &trace, const std::vector<const CachePolicy *> &policies,
		     const std::vector<double> &capacities, const std::optional<ThreeTiers> &tiers,
		     const Progress &progress);

SimResult run_att(const std::vector<AttTrace> &traces,
		  const std::vector<const AttPolicy *> &policies, const Access &access,
		  const std::vector<double> &budgets, const std::optional<ThreeTiers> &tiers,
		  const Progress &progress);

} // namespace cxlkv::sim
