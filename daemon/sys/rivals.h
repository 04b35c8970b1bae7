/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What else on this host moves pages between nodes by rules of its own: two tierers undo each
 * other's work. */
#pragma once

#include "sys/host.h"

#include <string>
#include <vector>

namespace cxlkv {

struct Rival {
	std::string what;   /* a clause: "kernel demotion moves pages too" */
	std::string remedy; /* what to do about it */
};

/* NUMA balancing, kernel demotion, DAMON's schemes and modules, and daemons known by name. */
std::vector<Rival> find_rivals(const Host &host);

} // namespace cxlkv
