/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv tune: shows the running daemon's settings, and changes those that can change live. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/json_text.h"
#include "cli/units.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

int cmd_tune(int argc, char **argv)
{
	using nlohmann::json;
	bool as_json = false;
	std::vector<std::string> words;
	Args args(
		"tune",
		"Without words, lists the settings of the running daemon; * marks what can change "
		"live.\nWith TABLE.KEY=VALUE, changes those, all or none, until the daemon ends or "
		"its\nconfiguration is read again (systemctl reload cxl-kvd).");
	args.flag('j', "json", as_json, "print the answer as JSON");
	args.words("[TABLE.KEY=VALUE...]", words, 0);
	if (auto exit = args.parse(argc, argv))
		return *exit;

	json request = {{"op", "tune"}}, answer;
	for (const std::string &word : words) {
		size_t equals = word.find('=');
		if (equals == std::string::npos || equals == 0)
			return args.wrong(
				word + ": has to be TABLE.KEY=VALUE, such as mover.max_MBps=500");
		request["set"][word.substr(0, equals)] = word.substr(equals + 1);
	}
	if (int exit = ask_daemon(request, answer))
		return exit;
	if (as_json) {
		fmt::print(
			"{}\n",
			json_text({{"keys", answer["keys"]}, {"changed", answer["changed"]}}, 2));
		return kExitOk;
	}
	if (words.empty())
		for (const json &key : answer["keys"])
			fmt::print("{} {} {}\n", key.value("live", false) ? "*" : " ",
				   left(text_at(key, "/key"), 32), text_at(key, "/value"));
	for (const json &change : answer["changed"])
		fmt::print("{} is {} now, was {}\n", text_at(change, "/key"),
			   text_at(change, "/after"), text_at(change, "/before"));
	if (!words.empty() && answer["changed"].empty())
		fmt::print("nothing to change\n");
	return kExitOk;
}

} // namespace cxlkv
