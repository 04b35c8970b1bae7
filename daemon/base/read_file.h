/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A whole file. */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>

namespace cxlkv {

/* EFBIG beyond max_bytes, which may be a device that has no end. Errors name the file. */
Result<std::string> read_file(const std::string &path, uint64_t max_bytes);

} // namespace cxlkv
