/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv drain: empties a tier and keeps it empty, until told otherwise. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/json_text.h"
#include "cli/units.h"

#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>

namespace cxlkv {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

Result<uint64_t> bytes_in(const std::string &tier)
{
	auto status = ask_daemon({{"op", "status"}});
	if (!status)
		return status.error();
	return number_at(*status, ("/tiers/" + tier + "/bytes").c_str());
}

/* The tier's bytes until they are 0, or have not become fewer for so long. */
int wait_empty(const std::string &tier, double patience_s, bool as_json)
{
	const bool people = isatty(STDERR_FILENO);
	uint64_t fewest = UINT64_MAX;
	auto since = Clock::now();

	for (;;) {
		auto left = bytes_in(tier);
		if (!left)
			return complain(left.error());
		if (people)
			fmt::print(stderr, "\r\033[K{} left in the {} tier{}", human_bytes(*left),
				   tier, *left ? "" : "\n");
		if (*left < fewest) {
			fewest = *left;
			since = Clock::now();
		}
		bool stuck =
			std::chrono::duration<double>(Clock::now() - since).count() > patience_s;
		if (*left && !stuck) {
			std::this_thread::sleep_for(std::chrono::milliseconds(100));
			continue;
		}
		if (as_json)
			fmt::print("{}\n", json_text({{"tier", tier}, {"left_bytes", *left}}));
		else if (!*left)
			fmt::print("the {} tier is empty and stays so until `cxl-kv drain --undo "
				   "{}`\n",
				   tier, tier);
		if (*left)
			fmt::print(
				stderr,
				"{}cxl-kv drain: {} stay: leased by an engine, or without room in "
				"the other\ntiers. The drain goes on; close sessions, or raise "
				"the limits of the other tiers.\n",
				people ? "\n" : "", human_bytes(*left));
		return *left ? kExitFailure : kExitOk;
	}
}

} // namespace

int cmd_drain(int argc, char **argv)
{
	bool undo = false, no_wait = false, as_json = false;
	double patience_s = 10;
	std::vector<std::string> words;
	Args args(
		"drain",
		"Empties a tier and keeps it empty. warm: its blocks go to hot as far as there is "
		"room,\nthe others to cold; then its nodes can be taken offline. cold: all blocks "
		"come back to\nmemory; then the daemon can be stopped without an engine waiting "
		"for it. Lasts until\n--undo or until the daemon ends.");
	args.flag('u', "undo", undo, "let blocks go there again");
	args.flag(0, "no-wait", no_wait, "return at once");
	args.number('p', "patience", "SECONDS", patience_s, {0.1, 86400},
		    "give up when nothing has left for so long (10)");
	args.flag('j', "json", as_json, "print what is left as JSON");
	args.words("warm|cold", words, 1, 1);
	if (auto exit = args.parse(argc, argv))
		return *exit;
	if (words[0] != "warm" && words[0] != "cold")
		return args.wrong("TIER is warm or cold, not " + words[0]);

	json answer;
	if (int exit = ask_daemon({{"op", "drain"}, {"tier", words[0]}, {"on", !undo}}, answer))
		return exit;
	return undo || no_wait ? kExitOk : wait_empty(words[0], patience_s, as_json);
}

} // namespace cxlkv
