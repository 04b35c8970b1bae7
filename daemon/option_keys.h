/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The keys of the configuration: for each its table and name, what it takes,
 * and how it is read, shown and copied. Where values come from is options.cc's
 * business.
 */
#pragma once

#include "options.h"

#include <functional>
#include <string>
#include <vector>

/* It asserts what it says as an error a line later: that "[=" is no header of a table. */
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

namespace cxlkv {

struct OptionKey {
	std::string table, name;
	std::string allowed; /* what a person is told when the value cannot be */
	std::function<bool(Options &, const toml::node &)> set; /* false: not allowed */
	std::function<std::string(const Options &)> show;
	std::function<void(Options &to, const Options &from)> copy;

	[[nodiscard]] std::string full_name() const { return table + "." + name; }
};

std::vector<OptionKey> option_keys();

} // namespace cxlkv
