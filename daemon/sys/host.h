/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the host's files say, read only. Below a root of one's choice, so that tests can bring a
 * host along. */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cxlkv {

class Host {
public:
	explicit Host(std::string root = "") : root_(std::move(root)) {}

	[[nodiscard]] std::string path(const std::string &path) const { return root_ + path; }
	[[nodiscard]] bool exists(const std::string &path) const;
	/* First line without its end; "" where it cannot be read. */
	[[nodiscard]] std::string line(const std::string &path) const;
	[[nodiscard]] std::vector<std::string> lines(const std::string &path) const;
	/* Names in a folder, sorted; none where it cannot be read. */
	[[nodiscard]] std::vector<std::string> names(const std::string &folder) const;
	/* Name that a link ends in ("../../bus/drivers/kmem" -> "kmem"); "" where there is none. */
	[[nodiscard]] std::string link_name(const std::string &path) const;
	/* The number on the first line; nothing where it is none, as in "max". */
	[[nodiscard]] std::optional<uint64_t> number(const std::string &path) const;

private:
	std::string root_;
};

/* "0-2,4" as sysfs writes lists; nothing of what does not parse. */
std::vector<int> id_list(const std::string &text);

/* The word in brackets, as in "always [madvise] never". */
std::string chosen(const std::string &text);

} // namespace cxlkv
