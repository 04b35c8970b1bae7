/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv list: one line an arena. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/json_text.h"
#include "cli/units.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

using nlohmann::json;

void print_line(const std::string &arena, const std::string &name, const std::string &pid,
		const std::string &slots, const std::string &heads, const std::string &block,
		const std::string &hot, const std::string &warm, const std::string &cold,
		const std::string &lost)
{
	fmt::print("{} {} {} {} {} {} {} {} {} {}\n", right(arena, 5), left(name.substr(0, 14), 14),
		   right(pid, 7), right(slots, 5), right(heads, 7), right(block, 8), right(hot, 8),
		   right(warm, 8), right(cold, 8), lost);
}

void print_arena(const json &arena)
{
	auto bytes = [&](const char *pointer) { return human_bytes(number_at(arena, pointer)); };
	auto count = [&](const char *pointer) { return std::to_string(number_at(arena, pointer)); };
	uint64_t lost = number_at(arena, "/bytes/lost");
	uint64_t bad = number_at(arena, "/bad_hints");
	std::string notes;

	if (lost)
		notes += " lost " + human_bytes(lost);
	json::json_pointer nmse("/format/nmse"), worst("/format/worst_nmse");
	if (arena.contains(nmse) && arena.at(nmse).is_number())
		notes += fmt::format(" {}, NMSE {:.1e}, worst head {:.1e}",
				     text_at(arena, "/format/name"), arena.at(nmse).get<double>(),
				     arena.value(worst, 0.0));
	if (bad)
		notes += fmt::format(" {} bad hints", human_count(bad));
	print_line(count("/arena"), printable(text_at(arena, "/name")), count("/pid"),
		   count("/slots"), count("/layers") + "x" + count("/kv_heads"),
		   bytes("/block_bytes"), bytes("/bytes/hot"), bytes("/bytes/warm"),
		   bytes("/bytes/cold"), notes);
}

} // namespace

int cmd_list(int argc, char **argv)
{
	bool as_json = false;
	Args args("list", "Shows the arenas: name and process of the client, session slots, layers "
			  "x KV heads,\n"
			  "bytes of a block, bytes in each tier; lost blocks and bad hints where "
			  "there are any,\n"
			  "and what storing blocks with loss cost: the error's energy by the "
			  "values', over all\n"
			  "heads and of the head that lost most.");
	args.flag('j', "json", as_json, "print the daemon's answer as JSON");
	if (auto exit = args.parse(argc, argv))
		return *exit;

	json answer;
	if (int exit = ask_daemon({{"op", "list"}}, answer))
		return exit;
	answer.erase("id");
	answer.erase("ok");
	if (as_json) {
		fmt::print("{}\n", json_text(answer, 2));
		return kExitOk;
	}
	if (!answer["arenas"].is_array() || answer["arenas"].empty()) {
		fmt::print("no arena: no engine is connected\n");
		return kExitOk;
	}
	print_line("ARENA", "NAME", "PID", "SLOTS", "HEADS", "BLOCK", "HOT", "WARM", "COLD", "");
	for (const json &arena : answer["arenas"])
		print_arena(arena);
	return kExitOk;
}

} // namespace cxlkv
