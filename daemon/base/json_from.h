/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * JSON that somebody else wrote. nlohmann's parser takes any depth, but its copies and its dump()
 * recurse: what is nested too deep is refused before it is parsed.
 */
#pragma once

#include "base/result.h"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace cxlkv {

constexpr size_t kMaxJsonDepth = 64;

/* EINVAL where it is not JSON, or too deep. */
Result<nlohmann::json> json_from(std::string_view text);
/* The same of a file: a model's configuration or measured figures, so not of any size. Its errors
 * name the file. */
Result<nlohmann::json> json_from_file(const std::string &path);

} // namespace cxlkv
