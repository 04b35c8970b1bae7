/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/top_view.h"

#include "cli/control_client.h"
#include "cli/status_view.h"
#include "cli/units.h"

#include <algorithm>
#include <fmt/format.h>

namespace cxlkv {

namespace {

using nlohmann::json;

/* Growth of a counter between the samples. A restarted daemon counts from 0 again: no rate then. */
struct Rates {
	const TopSample &before, &now;

	[[nodiscard]] double per_s(const char *pointer) const
	{
		uint64_t was = number_at(before.status, pointer),
			 is = number_at(now.status, pointer);
		double seconds = now.at_s - before.at_s;
		return seconds > 0 && is >= was ? static_cast<double>(is - was) / seconds : 0;
	}
	[[nodiscard]] std::string rate(const char *pointer) const
	{
		return now.at_s > before.at_s ? human_rate(per_s(pointer)) : "-";
	}
	[[nodiscard]] std::string count(const char *pointer) const
	{
		return now.at_s > before.at_s ? fmt::format("{:.0f}/s", per_s(pointer)) : "-";
	}
};

TopLine head_line(const json &status)
{
	return {{TopPiece::Bold, fmt::format("cxl-kvd {}", text_at(status, "/version"))},
		{TopPiece::Normal, fmt::format("  {} mode, {} policy, up {}, arenas: {}",
					       text_at(status, "/mode"), text_at(status, "/preset"),
					       human_duration(number_at(status, "/uptime_s")),
					       number_at(status, "/arenas"))}};
}

TopLine tier_line(const json &status, const std::string &name)
{
	std::string at = "/tiers/" + name;
	uint64_t used = number_at(status, (at + "/bytes").c_str());
	uint64_t limit = number_at(status, (at + "/limit_bytes").c_str());
	uint64_t blocks = number_at(status, (at + "/blocks").c_str());

	if (!used && !limit)
		return {{TopPiece::Dim, left(name, 5) + " none"}};
	auto style = limit && used > limit ? TopPiece::Alarm : TopPiece::Normal;
	return {{TopPiece::Bold, left(name, 5)},
		{TopPiece::Normal, right(human_count(blocks), 9) + " blocks" +
					   right(human_bytes(used), 10) + " of " +
					   left(human_bytes(limit), 9)},
		{style, right(human_share(used, limit), 6) + " " + fill_bar(used, limit, 26)}};
}

TopLine flow_line(const Rates &r, const char *name, const char *bytes, const std::string &rest)
{
	return {{TopPiece::Bold, left(name, 8)},
		{TopPiece::Normal, right(r.rate(bytes), 10) +
					   right(human_bytes(number_at(r.now.status, bytes)), 10) +
					   "  " + rest}};
}

std::vector<TopLine> flow_lines(const Rates &r)
{
	const json &s = r.now.status;
	auto ns = [&](const char *pointer) { return human_ns(number_at(s, pointer)); };
	auto moves = [&](const std::string &at) {
		return fmt::format("{} of {} moved, {} failed",
				   human_count(number_at(s, (at + "/moved").c_str())),
				   human_count(number_at(s, (at + "/attempted").c_str())),
				   human_count(number_at(s, (at + "/failed").c_str())));
	};
	std::vector<TopLine> lines = {
		{{TopPiece::Dim, "              now     total"}},
		flow_line(r, "spill", "/spill/spilled_bytes",
			  fmt::format("{} aborted, {} failed",
				      human_count(number_at(s, "/spill/aborted")),
				      human_count(number_at(s, "/spill/failed")))),
		flow_line(r, "restore", "/restore/restored_bytes",
			  fmt::format("p50 {}, p99 {}; {} by a fault", ns("/restore/p50_ns"),
				      ns("/restore/p99_ns"),
				      human_count(number_at(s, "/restore/demand")))),
		flow_line(r, "promote", "/mover/promote/bytes", moves("/mover/promote")),
		flow_line(r, "demote", "/mover/demote/bytes", moves("/mover/demote")),
		{{TopPiece::Bold, "faults  "},
		 {TopPiece::Normal,
		  right(r.count("/faults/missing"), 10) +
			  right(human_count(number_at(s, "/faults/missing")), 10) + "  missing; " +
			  r.count("/faults/wp") + " write-protect"}},
		{{TopPiece::Bold, "wakes   "},
		 {TopPiece::Normal, right(r.count("/wake/count"), 10) +
					    right(human_count(number_at(s, "/wake/count")), 10) +
					    "  p50 " + ns("/wake/p50_ns") + ", p99 " +
					    ns("/wake/p99_ns")}},
	};
	uint64_t bad = number_at(s, "/store/checksum_failures") + number_at(s, "/store/io_errors");
	if (uint64_t lost = number_at(s, "/lost_blocks"); lost || bad)
		lines.push_back({{TopPiece::Alarm,
				  fmt::format("{} blocks lost, {} checksum failures, {} I/O errors",
					      human_count(lost),
					      human_count(number_at(s, "/store/checksum_failures")),
					      human_count(number_at(s, "/store/io_errors")))}});
	return lines;
}

/* Every cell of a small map is some columns wide, so that it can be seen. */
TopLine map_row(const HeatMap &map, size_t y, size_t cell_width)
{
	TopLine line = {{TopPiece::Dim, right(std::to_string(y * map.heads_per_cell()), 4) + " "}};

	for (size_t x = 0; x < map.width(); x++) {
		size_t level = map.level(x, y);
		/* Neighbours of one level share a piece. */
		if (line.back().style != TopPiece::Heat || line.back().level != level)
			line.push_back({TopPiece::Heat, "", level});
		line.back().text += std::string(cell_width, HeatMap::letter(level));
	}
	return line;
}

std::vector<TopLine> map_lines(const TopSample &now, HeatOf of, TopRoom room)
{
	if (now.arena.is_null() || room.height < 4 || room.width < 16)
		return {{{TopPiece::Dim,
			  now.arena.is_null() ? "no arena: no engine is connected" : ""}}};

	HeatMap map(now.heads, of, room.width - 6, room.height - 3);
	std::vector<TopLine> lines = {
		{{TopPiece::Bold, fmt::format("arena {} ", number_at(now.arena, "/arena"))},
		 {TopPiece::Normal,
		  fmt::format("{}, pid {}: {}",
			      printable(text_at(now.arena, "/name")).substr(0, 20),
			      number_at(now.arena, "/pid"), heat_title(of))}}};
	if (map.empty()) {
		lines.push_back({{TopPiece::Dim, "no heads to show"}});
		return lines;
	}
	lines.push_back({{TopPiece::Dim,
			  fmt::format("     layers 0 to {}, {} a column; KV heads down, {} a row",
				      number_at(now.heads, "/layers") - 1, map.layers_per_cell(),
				      map.heads_per_cell())}});
	size_t cell_width = std::min<size_t>((room.width - 6) / map.width(), 3);
	for (size_t y = 0; y < map.height(); y++)
		lines.push_back(map_row(map, y, cell_width));
	TopLine legend = {{TopPiece::Dim, "     0 "}};
	for (size_t level = 0; level < HeatMap::kNrLevels; level++)
		legend.push_back({TopPiece::Heat, std::string(1, HeatMap::letter(level)), level});
	legend.push_back({TopPiece::Dim, fmt::format(" {:.3g}", map.top())});
	lines.push_back(legend);
	return lines;
}

/* Bytes go from the end until a whole letter is gone, so none is cut open. */
void cut(TopLine &line, size_t width)
{
	for (TopPiece &piece : line) {
		while (columns(piece.text) > width)
			piece.text.pop_back();
		width -= columns(piece.text);
	}
}

} // namespace

std::vector<TopLine> top_frame(const TopSample &before, const TopSample &now, HeatOf of,
			       TopRoom room)
{
	std::vector<TopLine> frame = {head_line(now.status)};

	for (const char *tier : {"hot", "warm", "cold"})
		frame.push_back(tier_line(now.status, tier));
	for (TopLine &line : flow_lines({before, now}))
		frame.push_back(std::move(line));
	frame.push_back({});
	size_t left_over = room.height > frame.size() ? room.height - frame.size() : 0;
	for (TopLine &line : map_lines(now, of, {room.width, left_over}))
		frame.push_back(std::move(line));
	if (frame.size() > room.height)
		frame.resize(room.height);
	for (TopLine &line : frame)
		cut(line, room.width);
	return frame;
}

std::string plain(const std::vector<TopLine> &frame)
{
	std::string out;

	for (const TopLine &line : frame) {
		for (const TopPiece &piece : line)
			out += piece.text;
		out.erase(out.find_last_not_of(' ') + 1);
		out += '\n';
	}
	return out;
}

} // namespace cxlkv
