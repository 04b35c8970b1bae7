#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# cxl-kv replay: every use of a block is accounted for, and its bytes are right though most of
# the trace does not fit into memory.
# shellcheck disable=SC2154 # $disk: set by daemon.sh
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=../lib/daemon.sh
. selftests/lib/daemon.sh
own_daemon_test
replay() { build/bin/cxl-kv replay "$@"; }

# 40 conversations in turn, 4 turns each: a shared prefix of 8 blocks, then their own, which grow.
awk 'BEGIN {
	for (turn = 1; turn <= 4; turn++)
		for (c = 0; c < 40; c++) {
			line = (turn * 40 + c) * 10
			for (b = 0; b < 8; b++)
				line = line " " b
			for (b = 0; b < 6 * turn; b++)
				line = line " " (8 + c * 24 + b)
			print line
		}
}' >"$disk/trace"

replay -j "$disk/trace" >"$disk/out" 2>/dev/null
[ $? = 3 ]
report $? "without a daemon it says so"

start_daemon HOT__LIMIT=4MiB COLD__SIZE=64MiB || exit 1
replay -j "$disk/trace" >"$disk/out"
report $? "it ends well"
# 968 blocks are made; each of 160 requests uses 8 + 6 x turn, of which 6 (and at first 8) are new.
jq -e '.requests == 160 and .no_room == 0 and .blocks.made == 968 and .blocks.wrong == 0 and
	.blocks.lost == 0 and .blocks.hits + .blocks.restored == 40 * (14 + 20 + 26 + 32) - 968' \
	"$disk/out" >/dev/null
report $? "every use is a block made, a hit, or one brought back"
jq -e '.blocks.restored > 500' "$disk/out" >/dev/null
report $? "blocks left memory and came back"
status | jq -e '.restore.restored >= 500 and .restore.lost == 0 and .arenas == 0' >/dev/null
report $? "the daemon counts the same, and keeps nothing"
sed 's/^/# /' "$disk/out"

[ "$(replay -j -n 3 "$disk/trace" | jq .requests)" = 3 ]
report $? "a part of the trace"
echo "no trace" >"$disk/bad"
! replay "$disk/bad" 2>"$disk/err" && grep -q 'bad: line 1' "$disk/err"
report $? "what is no trace is refused by line"
! replay --block 5 "$disk/trace" 2>"$disk/err" && grep -q 'power of two' "$disk/err"
report $? "a block of another size is refused"
echo "1..$number"
exit $bad
