/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/block_trace.h"

#include "base/json_from.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

namespace cxlkv::sim {

namespace {

/* A request of 4M blocks would be a context of 64M tokens. */
constexpr size_t max_blocks_a_request = 1 << 22;
constexpr size_t max_unique_blocks = 1 << 30;

/* Ids of any size to 0, 1, 2, ... */
class DenseIds {
public:
	uint32_t of(uint64_t id)
	{
		return ids_.try_emplace(id, static_cast<uint32_t>(ids_.size())).first->second;
	}
	[[nodiscard]] bool full() const { return ids_.size() >= max_unique_blocks; }

private:
	std::unordered_map<uint64_t, uint32_t> ids_;
};

struct Line {
	uint64_t time_ms = 0;
	std::vector<uint64_t> ids;
};

/* "" or what is wrong. */
std::string parse_json(std::string_view text, Line &line)
{
	auto json = json_from(text);
	if (!json)
		return json.error().what;
	if (!json->is_object())
		return "not a JSON object";
	auto time = json->find("timestamp"), ids = json->find("hash_ids");
	if (time == json->end() || !time->is_number() || time->get<double>() < 0 ||
	    time->get<double>() > 1e18)
		return "no \"timestamp\" in ms";
	if (ids == json->end() || !ids->is_array())
		return "no \"hash_ids\" array";
	line.time_ms = static_cast<uint64_t>(time->get<double>());
	for (const auto &id : *ids) {
		if (!id.is_number_unsigned())
			return "a hash id that is not an unsigned integer";
		line.ids.push_back(id.get<uint64_t>());
	}
	return "";
}

std::string parse_numbers(std::string_view text, Line &line)
{
	const char *at = text.data(), *end = at + text.size();
	bool first = true;
	for (;;) {
		while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
			at++;
		if (at == end)
			return first ? "empty line" : "";
		uint64_t value;
		auto [next, error] = std::from_chars(at, end, value);
		if (error != std::errc() ||
		    (next < end && *next != ' ' && *next != '\t' && *next != '\r'))
			return "expected `t_ms id id ...`, unsigned integers";
		at = next;
		if (first)
			line.time_ms = value;
		else
			line.ids.push_back(value);
		first = false;
	}
}

} // namespace

void BlockTrace::add(uint64_t time_ms, const std::vector<uint32_t> &blocks)
{
	times_.push_back(time_ms);
	blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
	ends_.push_back(blocks_.size());
	for (uint32_t block : blocks)
		nr_unique_ = std::max(nr_unique_, block + 1);
}

Result<BlockTrace> parse_block_trace(const std::string &text)
{
	BlockTrace trace;
	DenseIds dense;
	std::vector<uint32_t> blocks;
	size_t number = 0;
	for (size_t at = 0; at < text.size();) {
		size_t end = std::min(text.find('\n', at), text.size());
		std::string_view raw(text.data() + at, end - at);
		at = end + 1;
		number++;
		if (raw.empty() || raw[0] == '#')
			continue;
		Line line;
		std::string wrong =
			raw[0] == '{' ? parse_json(raw, line) : parse_numbers(raw, line);
		if (wrong.empty() && line.ids.size() > max_blocks_a_request)
			wrong = "more than " + std::to_string(max_blocks_a_request) +
				" blocks in a request";
		if (wrong.empty() && dense.full())
			wrong = "more than " + std::to_string(max_unique_blocks) +
				" different blocks";
		if (!wrong.empty())
			return error(EINVAL, "line " + std::to_string(number) + ": " + wrong);
		blocks.clear();
		for (uint64_t id : line.ids)
			blocks.push_back(dense.of(id));
		trace.add(line.time_ms, blocks);
	}
	if (!trace.nr_accesses())
		return error(EINVAL, "no request with a block in it");
	return trace;
}

} // namespace cxlkv::sim
