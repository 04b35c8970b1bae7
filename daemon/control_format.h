/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How an arena's blocks are stored: what a registration asks for, and what is shown of it. */
#pragma once

#include "base/result.h"
#include "sys/arena.h"

#include <nlohmann/json.hpp>
#include <string>

namespace cxlkv {

/*
 * elem_type and cold_format of a registration; EINVAL where they are none. An
 * engine that does not say what its elements are never gets a lossy format.
 */
Result<ColdFormat> get_cold_format(const nlohmann::json &in, const std::string &by_default);
/* Also says so where blocks of this shape would not get smaller by it. */
void set_cold_format(Arena &arena, ColdFormat format);

/* Format and its cost so far. */
nlohmann::json show_cold_format(const Arena &arena);
/* nmse and cosine; null where nothing was encoded. */
nlohmann::json show(const codec::ErrorStats &error);

} // namespace cxlkv
