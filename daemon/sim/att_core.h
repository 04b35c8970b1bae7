/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An attention trace through the daemon's own policy (core/policy.h): what is
 * accessed is hinted, what is missing is fetched, and what a plan orders is done.
 */
#pragma once

#include "core/policy.h"
#include "sim/att_replay.h"

namespace cxlkv::sim {

void replay_core(const AttTrace &trace, const PolicyOptions &options, const Access &access,
		 double budget, AttHits &hits);
/* With the options that the simulator runs a preset with. */
void replay_core(const AttTrace &trace, const char *preset, const Access &access, double budget,
		 AttHits &hits);

} // namespace cxlkv::sim
