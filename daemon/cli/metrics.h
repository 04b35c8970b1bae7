/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's answers as Prometheus text (exposition format 0.0.4). docs/metrics.md lists the
 * names. */
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace cxlkv {

/* status and list as the daemon gave them. */
std::string metrics_text(const nlohmann::json &status, const nlohmann::json &list);
/* No daemon: only cxl_kv_up 0, so that its absence can be alerted on. */
std::string metrics_text_down();

} // namespace cxlkv
