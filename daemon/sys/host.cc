/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/host.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace cxlkv {

namespace fs = std::filesystem;

namespace {

std::optional<uint64_t> to_number(const std::string &text)
{
	uint64_t value = 0;
	auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);

	if (wrong != std::errc() || end != text.data() + text.size())
		return {};
	return value;
}

} // namespace

bool Host::exists(const std::string &path) const
{
	std::error_code ec;
	return fs::exists(root_ + path, ec);
}

std::vector<std::string> Host::lines(const std::string &path) const
{
	std::ifstream in(root_ + path);
	std::vector<std::string> lines;

	for (std::string line; std::getline(in, line);)
		lines.push_back(line);
	return lines;
}

std::string Host::line(const std::string &path) const
{
	std::vector<std::string> all = lines(path);
	return all.empty() ? "" : all.front();
}

std::vector<std::string> Host::names(const std::string &folder) const
{
	std::vector<std::string> names;
	std::error_code ec;

	for (fs::directory_iterator at(root_ + folder, ec), end; !ec && at != end; at.increment(ec))
		names.push_back(at->path().filename());
	std::ranges::sort(names);
	return names;
}

std::string Host::link_name(const std::string &path) const
{
	std::error_code ec;
	return fs::read_symlink(root_ + path, ec).filename();
}

std::optional<uint64_t> Host::number(const std::string &path) const
{
	return to_number(line(path));
}

std::vector<int> id_list(const std::string &text)
{
	std::vector<int> ids;

	for (size_t at = 0; at < text.size();) {
		size_t comma = std::min(text.find(',', at), text.size());
		std::string part = text.substr(at, comma - at);
		size_t dash = std::min(part.find('-'), part.size());
		auto first = to_number(part.substr(0, dash));
		auto last = dash < part.size() ? to_number(part.substr(dash + 1)) : first;
		if (first && last && *last < 65536)
			for (uint64_t id = *first; id <= *last; id++)
				ids.push_back(static_cast<int>(id));
		at = comma + 1;
	}
	return ids;
}

std::string chosen(const std::string &text)
{
	size_t open = text.find('['), close = text.find(']');
	if (open == std::string::npos || close == std::string::npos || close < open)
		return text;
	return text.substr(open + 1, close - open - 1);
}

} // namespace cxlkv
