/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cpuset(7) of a client. Moving shared pages from our own mapping goes past it,
 * so it is asked before.
 */
#pragma once

#include <sys/types.h>
#include <vector>

namespace cxlkv {

/* Memory of the process may lie on one of the nodes; true, too, where /proc does not tell. */
bool cpuset_allows(pid_t pid, const std::vector<int> &nodes);

} // namespace cxlkv
