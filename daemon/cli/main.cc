/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv: finds the command in the table and runs it. */
#include "base/standard_files.h"
#include "base/written.h"
#include "cli/commands.h"

#include <cstdio>
#include <cstring>
#include <exception>

namespace {

using namespace cxlkv;

struct Command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
};

const Command commands[] = {
	{"status", cmd_status, "the daemon, its tiers, and what it has done so far"},
	{"list", cmd_list, "arenas: whose, their geometry, bytes in each tier"},
	{"top", cmd_top, "the same live, with rates and a heat map by layer and head"},
	{"report", cmd_report, "a heat map of one arena by layer and KV head over time"},
	{"tune", cmd_tune, "shows settings, and changes those that can change live"},
	{"pin", cmd_pin, "gives blocks of a session a priority"},
	{"drain", cmd_drain, "empties the warm or the cold tier and keeps it empty"},
	{"doctor", cmd_doctor, "what stands in the way of tiering on this host, and what to do"},
	{"metrics", cmd_metrics,
	 "counters as Prometheus text, or over HTTP on the loopback address"},
	{"record", cmd_record, "requests or attention of live sessions, as traces for sim"},
	{"sim", cmd_sim, "traces through the policy and its rivals; needs no daemon"},
	{"store", cmd_store, "stat, fsck, dump: a spill file that no daemon has open"},
	{"replay", cmd_replay, "plays a trace to the daemon as an engine would"},
	{"bench", cmd_bench, "measures this host's tiers: nodes, moves between them, drive"},
	{"plan", cmd_plan, "sizes, times and cost of a deployment, from a model of it"},
};

void print_help(FILE *to)
{
	fprintf(to, "usage: cxl-kv COMMAND [OPTION]...\n\n");
	for (const Command &command : commands)
		fprintf(to, "  %-8s %s\n", command.name, command.help);
	fprintf(to, "\n`cxl-kv COMMAND --help` lists a command's options; most have -j for JSON.\n"
		    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon.\n");
}

int dispatch(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return kExitUsage;
	}
	const char *name = argv[1];
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		print_help(stdout);
		return kExitOk;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		printf("cxl-kv %s\n", CXL_KV_VERSION);
		return kExitOk;
	}
	for (const Command &command : commands)
		if (!strcmp(name, command.name))
			return command.run(argc - 1, argv + 1);
	fprintf(stderr, "cxl-kv: no command %s; `cxl-kv --help` lists them\n", name);
	return kExitUsage;
}

} // namespace

int main(int argc, char **argv)
{
	keep_standard_files();
	try {
		return written("cxl-kv", dispatch(argc, argv));
	} catch (const std::exception &e) { /* out of memory, or a library's surprise */
		fprintf(stderr, "cxl-kv: %s\n", e.what());
		return kExitFailure;
	}
}
