/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's `status` answer as text of at most 80 columns. */
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace cxlkv {

std::string status_text(const nlohmann::json &status);

/* "[####....]"; empty where whole is 0. */
std::string fill_bar(uint64_t part, uint64_t whole, size_t width);
/* The tier's nodes as "0,1". */
std::string node_list(const nlohmann::json &tier);

} // namespace cxlkv
