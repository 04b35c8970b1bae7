/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * When the users of the agentic trace (callanjfox/kv-cache-tester) came back, and
 * how much they said: one request a line, "session t_ms in out model parent lcp
 * runs". Of that the first four numbers are read.
 */
#pragma once

#include "engine/workload.h"

namespace cxlkv::engine {

/*
 * The first options.rounds requests of as many sessions as there are
 * conversations, in the file's order; sessions with fewer are passed over. The
 * share of a turn is that of the tokens which its request added. When a session
 * began the trace does not say: as long after the start as its second request
 * after its first. EINVAL where the file is something else or has too few.
 */
Result<Pace> read_pace(const WorkloadOptions &options, const std::string &file);

} // namespace cxlkv::engine
