/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/json_from.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
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
	std::ifstream in(path, std::ios::binary);
	if (!in)
		return sys_error(path);
	std::string text, chunk(64 << 10, '\0');
	while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) ||
	       in.gcount() > 0) {
		text.append(chunk, 0, static_cast<size_t>(in.gcount()));
		if (text.size() > kMaxFileBytes)
			return error(EFBIG, path + ": larger than 16 MiB");
	}
	if (in.bad()) /* a folder, too */
		return sys_error(path);
	auto json = json_from(text);
	if (!json)
		return json.error().in(path);
	return json;
}

} // namespace cxlkv
