#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The daemon begins with the bandwidths that `cxl-kv bench -o` measured, where there are any.
# shellcheck disable=SC2154 # $disk, $daemon: set by daemon.sh
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=../lib/daemon.sh
. selftests/lib/daemon.sh
own_daemon_test
# JQ-CONDITION: waits until the daemon's status meets it.
becomes() {
	local _
	for _ in {1..100}; do
		! status | jq -e "$1" >/dev/null || return 0
		sleep 0.1
	done
	status | jq -c .bandwidths | sed 's/^/# /'
	return 1
}

cat >"$disk/bench.json" <<'JSON'
{"version": 1, "nodes": [], "moves": [{"from": 0, "to": 1, "MBps": 900}, {"from": 1, "to": 0, "MBps": 700}],
 "cold": {"write_MBps": 1234, "read_MBps": 4321, "block_bytes": 65536, "block_read_p50_ns": 90000}}
JSON
start_daemon HOT__LIMIT=4MiB COLD__SIZE=64MiB DAEMON__MEASURED="$disk/bench.json" || exit 1
becomes '.bandwidths.to_cold.MBps | . > 1200 and . < 1270'
report $? "what bench wrote is what it begins with"
grep -q 'bandwidths are those of' "$disk/daemon.log"
report $? "it says so"
end "$daemon"

: >"$disk/daemon.log"
echo '{"version": 7}' >"$disk/bench.json"
start_daemon HOT__LIMIT=4MiB COLD__SIZE=64MiB DAEMON__MEASURED="$disk/bench.json" || exit 1
becomes '.bandwidths | length > 0' && grep -q 'not written by .cxl-kv bench -o.; measuring instead' "$disk/daemon.log"
report $? "another file is named and not believed"
echo "1..$number"
exit $bad
