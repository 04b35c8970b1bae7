/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The held-out text that prompts are cut from. */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cxlkv::engine {

using Text = std::vector<uint8_t>;

/* The whole file; an empty one is an error. */
Result<Text> read_text(const std::string &path);

} // namespace cxlkv::engine
