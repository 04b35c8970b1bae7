/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Policies times capacities over a trace. */
#pragma once

#include "sim/att_policies.h"
#include "sim/block_trace.h"
#include "sim/jobs.h"
#include "sim/policies.h"
#include "sim/result.h"

#include <optional>

namespace cxlkv::sim {

SimResult run_blocks(const BlockTrace &trace, const std::vector<const CachePolicy *> &policies,
		     const std::vector<double> &capacities, const std::optional<ThreeTiers> &tiers,
		     const Progress &progress);

SimResult run_att(const std::vector<AttTrace> &traces,
		  const std::vector<const AttPolicy *> &policies, const Access &access,
		  const std::vector<double> &budgets, const std::optional<ThreeTiers> &tiers,
		  const Progress &progress);

} // namespace cxlkv::sim
