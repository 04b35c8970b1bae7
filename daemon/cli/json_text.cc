/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/json_text.h"

#include <nlohmann/json.hpp>

namespace cxlkv {

std::string json_text(const nlohmann::json &json, int indent)
{
	return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace cxlkv
