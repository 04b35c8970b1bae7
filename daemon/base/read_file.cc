/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/read_file.h"

#include <fmt/format.h>
#include <fstream>

namespace cxlkv {

Result<std::string> read_file(const std::string &path, uint64_t max_bytes)
{
	std::ifstream file(path, std::ios::binary);
	if (!file)
		return sys_error(path);
	std::string bytes, chunk(1 << 20, '\0');
	while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) ||
	       file.gcount() > 0) {
		bytes.append(chunk, 0, static_cast<size_t>(file.gcount()));
		if (bytes.size() > max_bytes)
			return error(EFBIG,
				     fmt::format("{}: larger than {} MiB", path, max_bytes >> 20));
	}
	if (file.bad()) /* a folder, too */
		return sys_error(path);
	return bytes;
}

} // namespace cxlkv
