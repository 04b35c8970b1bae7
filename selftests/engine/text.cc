/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/text.h"

#include <fstream>
#include <iterator>

namespace cxlkv::engine {

Result<Text> read_text(const std::string &path)
{
	std::ifstream in(path, std::ios::binary);
	if (!in)
		return sys_error(path);
	Text text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
	if (in.bad())
		return error(EIO, path + ": read failed");
	if (text.empty())
		return error(EINVAL, path + ": no text in it");
	return text;
}

} // namespace cxlkv::engine
