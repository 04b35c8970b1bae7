#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# SIGHUP: what can change live does, the log names what takes a restart, and a broken
# configuration changes nothing.
# shellcheck disable=SC2154 # $disk, $daemon: set by daemon.sh
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=../lib/daemon.sh
. selftests/lib/daemon.sh
own_daemon_test
# PATTERN: waits for a line of the daemon's log.
logged() {
	local _
	for _ in {1..100}; do
		grep -q "$1" "$disk/daemon.log" && return
		sleep 0.1
	done
	sed 's/^/# /' "$disk/daemon.log"
	return 1
}
# Reads the configuration again, stdin, and waits until that is done.
reload() {
	cat >"$config"
	: >"$disk/daemon.log"
	kill -HUP "$daemon"
	logged "read again\|nothing was changed"
}
preset() { status | jq -r .preset; }

config=$disk/cxl-kvd.toml
: >"$config"
start_daemon HOT__LIMIT=1MiB COLD__SIZE=64MiB || exit 1
[ "$(preset)" = adaptive ]
report $? "it starts with the defaults"

reload <<<'[policy]
preset = "paper"
[mover]
max_MBps = 7
[cold]
queue_depth = 8'
report $? "it reads the configuration again"
[ "$(preset)" = paper ] && grep -q 'policy.preset is paper now, was adaptive' "$disk/daemon.log"
report $? "what can change live does"
grep -q 'mover.max_MBps is 7 now, was 1000' "$disk/daemon.log"
report $? "the log says so"
grep -q 'cold.queue_depth stays 32: 8 takes a restart' "$disk/daemon.log"
report $? "what takes a restart is named"

reload <<<'[policy]
preset = "adaptive"
alpha = 2'
[ "$(preset)" = paper ] && grep -q "cxl-kvd.toml:3: policy.alpha = 2.* nothing was changed" "$disk/daemon.log"
report $? "an error changes nothing and is named by file, line and key"

reload < <(head -c 5000 build/bin/cxl-kvd)
[ "$(preset)" = paper ] && ! LC_ALL=C grep -q '[^[:print:]]' "$disk/daemon.log"
report $? "neither does a binary, and none of its bytes are in the log"

reload </dev/null
[ "$(preset)" = adaptive ] && ! grep -q queue_depth "$disk/daemon.log"
report $? "what is taken out again goes back to its default"
[ "$(status | jq .tiers.hot.limit_bytes)" = $((1 << 20)) ]
report $? "the environment still wins"

echo '[daemon]
enabled = false' | reload
build/bin/kv-engine run --conversations 4 --rounds 2 --context 512 --reply 8 --memory arena --deadline-ms 120000 \
	--output "$disk/out" >"$disk/engine.log" 2>&1 &
client=$!
full() { status | jq -e '.no_room > 0' >/dev/null; }
for _ in {1..300}; do
	full && break
	sleep 0.1
done
full && [ "$(status | jq .spill.spilled)" = 0 ]
report $? "not enabled, it refuses what finds no room, and spills nothing"
reload </dev/null
wait "$client"
report $? "enabled again, the engine gets its room and ends well"
client=
[ "$(status | jq .spill.spilled)" -gt 0 ]
report $? "and blocks spilled"
echo "1..$number"
exit $bad
