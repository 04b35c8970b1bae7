/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The bytes of a trace file, unpacked where it is .xz. */
#pragma once

#include "base/result.h"

#include <string>

namespace cxlkv::sim {

/* A trace larger than this once unpacked is refused. */
constexpr uint64_t max_trace_bytes = 4ull << 30;

Result<std::string> read_trace_file(const std::string &path);

} // namespace cxlkv::sim
