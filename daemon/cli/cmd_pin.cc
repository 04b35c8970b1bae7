/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv pin: gives blocks of a session a priority from outside the engine. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/json_text.h"
#include "cli/units.h"

#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

int cmd_pin(int argc, char **argv)
{
	using nlohmann::json;
	uint64_t head = 0, block = 0, nr_blocks = 0, priority = 100;
	double lifetime_s = 0;
	bool as_json = false, has_head = false;
	std::vector<std::string> words;
	Args args("pin",
		  "Gives the blocks of a session a priority: 100 leave the hot tier last, 0 first, "
		  "35 is what a\nblock has without. `cxl-kv list` shows the arenas; SLOT is the "
		  "session's number in its arena.");
	args.check(
		0, "head", "N",
		[&](const std::string &value) -> std::string {
			char *end = nullptr;
			head = strtoull(value.c_str(), &end, 10);
			has_head = true;
			return value.empty() || *end || value[0] == '-' || head > UINT32_MAX
				       ? "a head: layer x KV heads of a layer + KV head"
				       : "";
		},
		"only this head (all)");
	args.number(0, "block", "N", block, {0, 4294967295.0}, "from this block of each head (0)");
	args.number('n', "blocks", "N", nr_blocks, {1, 4294967295.0}, "so many blocks (all)");
	args.number('p', "priority", "P", priority, {0, 100}, "0 to 100 (100); 35 ends a pin");
	args.number('l', "lifetime", "SECONDS", lifetime_s, {0.001, 4294967},
		    "ends by itself (not at all)");
	args.flag('j', "json", as_json, "print the daemon's answer as JSON");
	args.words("ARENA SLOT", words, 2, 2);
	if (auto exit = args.parse(argc, argv))
		return *exit;

	json request = {{"op", "pin"}, {"priority", priority}, {"block", block}};
	const char *names[] = {"arena", "slot"};
	for (size_t i = 0; i < 2; i++) {
		char *end = nullptr;
		uint64_t value = strtoull(words[i].c_str(), &end, 10);
		if (words[i].empty() || *end || words[i][0] == '-' || value > UINT32_MAX)
			return args.wrong(fmt::format("{} is a number, not {}",
						      i ? "SLOT" : "ARENA", words[i]));
		request[names[i]] = value;
	}
	if (has_head)
		request["head"] = head;
	if (nr_blocks)
		request["nr_blocks"] = nr_blocks;
	if (lifetime_s > 0)
		request["lifetime_ms"] = static_cast<uint64_t>(lifetime_s * 1000);

	json answer;
	if (int exit = ask_daemon(request, answer))
		return exit;
	if (as_json)
		fmt::print("{}\n", json_text({{"blocks", number_at(answer, "/blocks")}}));
	else
		fmt::print("{} blocks have priority {}\n", number_at(answer, "/blocks"), priority);
	return kExitOk;
}

} // namespace cxlkv
