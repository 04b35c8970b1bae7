/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv status: one screen on the daemon, its tiers and what it has done. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/json_text.h"
#include "cli/status_view.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

int cmd_status(int argc, char **argv)
{
	bool as_json = false;
	Args args("status",
		  "Shows the daemon, the tiers and their fill, and counters since its start.");
	args.flag('j', "json", as_json, "print the daemon's answer as JSON");
	if (auto exit = args.parse(argc, argv))
		return *exit;

	nlohmann::json answer;
	if (int exit = ask_daemon({{"op", "status"}}, answer))
		return exit;
	answer.erase("id");
	answer.erase("ok");
	if (as_json)
		fmt::print("{}\n", json_text(answer, 2));
	else
		fmt::print("{}", status_text(answer));
	return kExitOk;
}

} // namespace cxlkv
