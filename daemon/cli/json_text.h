/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* JSON as the command line writes it: to stdout, into files and to the daemon. */
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace cxlkv {

/* Without a newline at its end; indent -1: in one line. Bytes that are no UTF-8, as paths may
 * have, become U+FFFD: what reads JSON would refuse them. */
std::string json_text(const nlohmann::json &json, int indent = -1);

} // namespace cxlkv
