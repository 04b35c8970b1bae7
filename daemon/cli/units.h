/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Numbers as people read them: three or four digits and a unit. JSON output never goes through
 * here. */
#pragma once

#include <cstdint>
#include <string>

namespace cxlkv {

/* 1536 -> "1.50 KiB"; powers of 1024. */
std::string human_bytes(uint64_t bytes);
/* Bytes a second -> "12.5 MB/s"; powers of 1000, as drives and links are sold. */
std::string human_rate(double bytes_per_s);
/* 1500 -> "1.50 µs" */
std::string human_ns(uint64_t ns);
/* 3725 s -> "1 h 2 min" */
std::string human_duration(uint64_t seconds);
/* Exact below a million, then 1234567 -> "1.23 M" */
std::string human_count(uint64_t count);
/* "37 %"; "-" where there is no whole. */
std::string human_share(uint64_t part, uint64_t whole);

/* Text from a client on its way to a terminal: anything but printable ASCII becomes '?'. */
std::string printable(const std::string &text);

/* Columns that a UTF-8 text takes; our own texts have no wide or combining letters. */
size_t columns(const std::string &text);
/* Padded with spaces to a width in columns. */
std::string left(const std::string &text, size_t width);
std::string right(const std::string &text, size_t width);
/* Broken between words into lines of at most width columns; all but the first are indented by more.
 */
std::string wrap(const std::string &text, size_t width, size_t indent);

} // namespace cxlkv
