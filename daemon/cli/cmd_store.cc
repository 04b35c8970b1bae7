/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv store: looks at a spill file that no daemon has open. Never writes. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/json_text.h"
#include "cli/units.h"
#include "sys/cold_format.h"
#include "sys/spill_store_inspect.h"

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

using nlohmann::json;

std::string label(uint64_t arena)
{
	return fmt::format("{:08x}", arena_label(arena));
}

json describe(const StoreImage &image)
{
	const SegmentTable &table = image.log.table;
	std::map<std::string, std::pair<uint64_t, uint64_t>> arenas;
	uint64_t nr_used = 0;

	for (uint32_t number = 0; number < table.size(); number++) {
		const Segment &segment = table.at(number);
		nr_used += segment.state == Segment::State::Open ||
			   segment.state == Segment::State::Closed;
		for (const BlockEntry &block : segment.blocks) {
			if (!block.live)
				continue;
			const ExtentEntry &extent = segment.extents[block.extent];
			auto &[nr, bytes] = arenas[label(extent.arena)];
			nr++;
			bytes += extent.block_bytes;
		}
	}
	json out = {
		{"path", image.file.path()},
		{"format", image.super.version},
		{"file", image.super.file + 1},
		{"files", image.super.nr_files},
		{"bytes", image.file.size()},
		{"segment_bytes", image.super.segment_bytes},
		{"segments", table.size()},
		{"segments_used", nr_used},
		{"extents", table.nr_extents()},
		{"blocks", image.log.index.size()},
		{"live_bytes", table.live_bytes()},
		{"checkpoint", image.log.position.checkpoint},
		{"replayed_extents", image.log.nr_replayed},
		{"arenas", json::array()},
	};
	for (auto &[name, counts] : arenas)
		out["arenas"].push_back(
			{{"arena", name}, {"blocks", counts.first}, {"bytes", counts.second}});
	return out;
}

int stat(const StoreImage &image, bool as_json)
{
	json out = describe(image);
	if (as_json) {
		fmt::print("{}\n", json_text(out, 2));
		return kExitOk;
	}
	auto count = [&](const char *name) { return out[name].get<uint64_t>(); };
	fmt::print("{}: file {} of {}, format {}, {}\n", image.file.path(), count("file"),
		   count("files"), count("format"), human_bytes(count("bytes")));
	fmt::print("segments  {} of {} in use, {} each\n", count("segments_used"),
		   count("segments"), human_bytes(count("segment_bytes")));
	fmt::print("blocks    {} in {} extents, {} live\n", count("blocks"), count("extents"),
		   human_bytes(count("live_bytes")));
	fmt::print("log       checkpoint {}, {} extents behind it\n", count("checkpoint"),
		   count("replayed_extents"));
	for (auto &arena : out["arenas"])
		fmt::print("arena     {}  {} blocks, {}\n", arena["arena"].get<std::string>(),
			   arena["blocks"].get<uint64_t>(),
			   human_bytes(arena["bytes"].get<uint64_t>()));
	return kExitOk;
}

/* A line an extent, or a JSON object a line: there can be millions. */
int dump(const StoreImage &image, bool as_json)
{
	const SegmentTable &table = image.log.table;

	for (uint32_t number = 0; number < table.size(); number++) {
		const Segment &segment = table.at(number);
		for (const ExtentEntry &e : segment.extents) {
			uint32_t live = 0;
			for (uint32_t i = 0; i < e.nr; i++)
				live += segment.blocks[e.first_slot + i].live;
			if (as_json)
				fmt::print("{}\n",
					   json_text({{"segment", number},
						      {"offset", e.offset},
						      {"arena", label(e.arena)},
						      {"first", e.first},
						      {"blocks", e.nr},
						      {"live", live},
						      {"block_bytes", e.block_bytes},
						      {"format",
						       name_of(static_cast<ColdFormat>(e.format))},
						      {"generation", e.generation},
						      {"version", e.version}}));
			else
				fmt::print(
					"segment {} +{}: arena {} blocks {}+{} of {} {}, {} live, "
					"generation {}, "
					"version {}\n",
					number, e.offset, label(e.arena), e.first, e.nr,
					e.block_bytes, name_of(static_cast<ColdFormat>(e.format)),
					live, e.generation, e.version);
		}
	}
	return kExitOk;
}

int fsck(const StoreImage &image, bool as_json)
{
	json bad = json::array();
	uint64_t nr = verify_blocks(image, [&](const BadBlock &block) {
		if (!as_json)
			fmt::print("arena {} block {} at {}: {}\n", label(block.key.arena),
				   block.key.block, block.offset, block.why);
		bad.push_back({{"arena", label(block.key.arena)},
			       {"block", block.key.block},
			       {"offset", block.offset},
			       {"why", block.why}});
	});
	bool clean = bad.empty() && image.damaged_copies.empty();

	if (as_json) {
		fmt::print("{}\n", json_text({{"blocks", nr},
					      {"bad", bad},
					      {"damaged_copies", image.damaged_copies}},
					     2));
		return clean ? kExitOk : kExitFailure;
	}
	for (const std::string &copy : image.damaged_copies)
		fmt::print("{} is damaged; the other copy serves\n", copy);
	fmt::print("{}: {} blocks, {} damaged{}\n", image.file.path(), nr, bad.size(),
		   bad.empty() ? "" : "; they will be misses, and the cleaner drops them");
	return clean ? kExitOk : kExitFailure;
}

} // namespace

int cmd_store(int argc, char **argv)
{
	bool as_json = false;
	std::vector<std::string> words;
	Args args("store",
		  "Looks at a spill file or device that no daemon has open, and changes nothing. "
		  "stat: says\nwhat is in it. fsck: reads and verifies every block, exit status 1 "
		  "where something is\ndamaged. dump: prints a line for each extent. Arenas are "
		  "shown by a label, as their keys\nare secret.");
	args.flag('j', "json", as_json, "print JSON");
	args.words("stat|fsck|dump PATH", words, 2, 2);
	if (auto exit = args.parse(argc, argv))
		return *exit;
	if (words[0] != "stat" && words[0] != "fsck" && words[0] != "dump")
		return args.wrong("no action " + words[0] + "; stat, fsck or dump");
	auto image = load_image(words[1]);
	if (!image) {
		fmt::print(stderr, "cxl-kv store: {}\n", image.error().what);
		if (image.error().code == EBADMSG)
			fmt::print(stderr, "The daemon will count all its blocks as lost and start "
					   "with an empty store.\n");
		return kExitFailure;
	}
	return words[0] == "stat"   ? stat(*image, as_json)
	       : words[0] == "dump" ? dump(*image, as_json)
				    : fsck(*image, as_json);
}

} // namespace cxlkv
