/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/json_from.h"

#include "base/read_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

constexpr size_t kMaxFileBytes = 16 << 20;

/* Right up to the first error, where the parser ends. */
bool too_deep(std::string_view text)
{
	size_t depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < text.size(); i++) {
		const char c = text[i];
		if (c == '"')
			in_string = !in_string;
		else if (in_string)
			i += c == '\\'; /* what is escaped ends no string */
		else if ((c == '[' || c == '{') && ++depth > kMaxJsonDepth)
			return true;
		else if ((c == ']' || c == '}') && depth)
			depth--;
	}
	return false;
}

} // namespace

Result<nlohmann::json> json_from(std::string_view text)
{
	if (too_deep(text))
		return error(EINVAL, fmt::format("JSON nested more than {} deep", kMaxJsonDepth));
	auto json = nlohmann::json::parse(text, nullptr, false);
	if (json.is_discarded())
		return error(EINVAL, "not JSON");
	return json;
}

Result<nlohmann::json> json_from_file(const std::string &path)
{
	auto text = read_file(path, kMaxFileBytes);
	if (!text)
		return text.error();
	auto json = json_from(*text);
	if (!json)
		return json.error().in(path);
	return json;
}

} // namespace cxlkv
