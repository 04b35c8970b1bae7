/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/transcript.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace cxlkv::engine {

namespace {

using nlohmann::json;

template <typename T> bool parse_hex(const char *from, const char *to, T *out)
{
	auto [end, code] = std::from_chars(from, to, *out, 16);
	return code == std::errc() && end == to;
}

std::string to_json(const Record &record)
{
	json line;
	std::string hex;

	for (uint8_t t : record.tokens)
		hex += fmt::format("{:02x}", t);
	line["tokens"] = hex;
	line["kv"] = json::array();
	for (uint64_t h : record.kv)
		line["kv"].push_back(fmt::format("{:016x}", h));
	return line.dump();
}

/* False on anything that to_json() would not write. */
bool from_json(const json &line, Record *record)
{
	if (!line.is_object() || !line.contains("tokens") || !line["tokens"].is_string() ||
	    !line.contains("kv") || !line["kv"].is_array())
		return false;
	const auto &hex = line["tokens"].get_ref<const std::string &>();
	if (hex.size() % 2)
		return false;
	record->tokens.resize(hex.size() / 2);
	for (size_t i = 0; i < record->tokens.size(); i++)
		if (!parse_hex(&hex[2 * i], &hex[2 * i] + 2, &record->tokens[i]))
			return false;
	for (const json &h : line["kv"]) {
		if (!h.is_string())
			return false;
		const auto &text = h.get_ref<const std::string &>();
		if (!parse_hex(text.data(), text.data() + text.size(), &record->kv.emplace_back()))
			return false;
	}
	return true;
}

template <typename T>
std::string first_difference(const char *what, const std::vector<T> &a, const std::vector<T> &b)
{
	if (a.size() != b.size())
		return fmt::format("{} {} against {}", a.size(), what, b.size());
	auto at = std::mismatch(a.begin(), a.end(), b.begin()).first;
	return fmt::format("{} {} of {} differs", what, at - a.begin(), a.size());
}

} // namespace

Result<> write_transcript(const std::string &path, const std::vector<Record> &records)
{
	std::ofstream out(path, std::ios::trunc);
	if (!out)
		return sys_error(path);
	for (const Record &r : records)
		out << to_json(r) << '\n';
	out.close();
	if (!out)
		return error(EIO, path + ": write failed");
	return ok();
}

Result<std::vector<Record>> read_transcript(const std::string &path)
{
	std::ifstream in(path);
	if (!in)
		return sys_error(path);
	std::vector<Record> records;
	for (std::string line; std::getline(in, line);) {
		Record record;
		if (!from_json(json::parse(line, nullptr, false), &record))
			return error(EINVAL, fmt::format("{}:{}: not a line of a transcript", path,
							 records.size() + 1));
		records.push_back(std::move(record));
	}
	if (in.bad())
		return error(EIO, path + ": read failed");
	return records;
}

Comparison compare(const std::vector<Record> &a, const std::vector<Record> &b)
{
	Comparison c;
	const size_t common = std::min(a.size(), b.size());

	c.nr = static_cast<uint32_t>(std::max(a.size(), b.size()));
	if (a.size() != b.size())
		c.differences.push_back(
			fmt::format("{} conversations against {}", a.size(), b.size()));
	for (size_t i = 0; i < common; i++) {
		const bool same_tokens = a[i].tokens == b[i].tokens, same_kv = a[i].kv == b[i].kv;
		c.nr_tokens_identical += same_tokens;
		c.nr_kv_identical += same_kv;
		if (!same_tokens)
			c.differences.push_back(
				fmt::format("conversation {}: {}", i,
					    first_difference("token", a[i].tokens, b[i].tokens)));
		else if (!same_kv)
			c.differences.push_back(
				fmt::format("conversation {}: {}", i,
					    first_difference("KV block", a[i].kv, b[i].kv)));
	}
	return c;
}

} // namespace cxlkv::engine
