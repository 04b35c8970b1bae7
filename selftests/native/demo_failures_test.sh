#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The engine on tiers that fail: the daemon killed with -9 and kept down, the
# spill file damaged, the spill file full. Each time the tokens are those of
# plain memory, or there is a clear error in time.
set -u
cd "$(dirname "$0")/../.." || exit 1
. selftests/lib/daemon.sh
own_daemon_needs || { echo "1..0 # SKIP needs root and userfaultfd"; exit 4; }
own_daemon_begin || exit 1

number=0 failed=0 conversations=8
# Also ends what the test has started.
result() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then
		echo "ok $number - $2"
	else
		echo "not ok $number - $2"
		tail -n 20 "$disk/engine.log" "$disk/daemon.log" "$disk/compared" 2>/dev/null | awk '{ print "# " $0 }'
		failed=1
	fi
	end "$client"
	client=
	end "$daemon"
	daemon=
	rm -f "$disk/spill"* "$disk/tiered" "$disk/compared" "$disk"/*.log
}

engine() {
	build/bin/kv-engine run --conversations "$conversations" --rounds 4 --context 1536 --reply 32 --json "$@"
}

start_engine() {
	engine --memory arena --output "$disk/tiered" "$@" >"$disk/tiered.json" 2>"$disk/engine.log" &
	client=$!
}

# Waits until the JSON condition holds in the daemon's status; fails when the engine ended before.
wait_for() {
	local _
	for _ in {1..600}; do
		status | jq -e "$1" >/dev/null && return
		kill -0 "$client" 2>/dev/null || return 1
		sleep 0.05
	done
	return 1
}

wait_engine() {
	wait "$client"
	local code=$?
	client=
	return "$code"
}

identical() {
	build/bin/kv-engine compare "$disk/plain" "$disk/tiered" >"$disk/compared" 2>&1
}

killed_and_kept_down() {
	start_daemon HOT__LIMIT="$limit" COLD__SIZE=1GB || return
	start_engine
	for _ in 1 2; do
		wait_for '.restore.restored > 300' || return
		kill -9 "$daemon"
		wait "$daemon" 2>/dev/null
		sleep 10 # the outage is the test
		kill -0 "$client" 2>/dev/null || return
		start_daemon HOT__LIMIT="$limit" COLD__SIZE=1GB || return
	done
	# Nothing that was spilled may be lost: the new daemon finds every block again.
	wait_engine && identical && jq -e '.recomputed == 0' "$disk/tiered.json" >/dev/null
}

damaged() {
	local at
	start_daemon HOT__LIMIT="$limit" COLD__SIZE=32MB || return
	start_engine
	wait_for '.tiers.cold.blocks > 300' || return
	# A byte in each 64 KiB behind the header, so that most conversations lose a block.
	for ((at = 65536 + 77; at < 32000000; at += 65536)); do
		printf '\x5a' | dd of="$disk/spill" bs=1 seek="$at" conv=notrunc status=none
	done
	wait_engine && identical && status | jq -e '.store.checksum_failures > 0' >/dev/null &&
		jq -e '.recomputed > 0' "$disk/tiered.json" >/dev/null
}

full() {
	local conversations=32 # several times what both tiers hold
	start_daemon HOT__LIMIT="$limit" COLD__SIZE=20MB || return
	start_engine --deadline-ms 3000
	wait_engine
	[ $? = 3 ] && grep -q 'no room' "$disk/engine.log"
}

echo "TAP version 13"
echo "1..3"
engine --memory plain --output "$disk/plain" >"$disk/plain.json" 2>/dev/null || exit 1
limit=$(jq '.kv_bytes / 4 | floor' "$disk/plain.json")

killed_and_kept_down
result $? "killed with -9 twice and kept down for 10 s, the tokens are the same"
damaged
result $? "a damaged spill file is noticed and computed again, the tokens are the same"
full
result $? "a full spill file ends in a clear error within the deadline"
exit $failed
