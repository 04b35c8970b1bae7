/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The commands of cxl-kv, one file each (cmd_NAME.cc). argv[0] is the command's
 * name; the answer is the exit status.
 */
#pragma once

namespace cxlkv {

enum ExitCode {
	kExitOk = 0,
	kExitFailure = 1,
	kExitUsage = 2,
	kExitNoDaemon = 3,
};

int cmd_bench(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_drain(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_metrics(int argc, char **argv);
int cmd_pin(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_store(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_tune(int argc, char **argv);

} // namespace cxlkv
