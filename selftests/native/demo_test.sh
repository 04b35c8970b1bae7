#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The native demo: it shows what it says, says why where it can't, and leaves nothing behind.
set -u
cd "$(dirname "$0")/../.." || exit 1
. selftests/lib/daemon.sh
own_daemon_needs || { echo "1..0 # SKIP needs root and userfaultfd"; exit 4; }
out=$(mktemp) || exit 1
demo=
trap 'kill $demo 2>/dev/null; rm -f "$out"' EXIT

number=0 status=0
result() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then
		echo "ok $number - $2"
	else
		echo "not ok $number - $2"
		awk '{ print "# " $0 }' "$out"
		status=1
	fi
}

left_over() {
	local path
	for path in build/own-daemon.*; do
		[ ! -e "$path" ] || echo "$path"
	done
}

# The processes whose parent is the demo.
children() {
	ps -o pid= --ppid "$1"
}

echo "TAP version 13"
echo "1..5"

selftests/demo-native 6 3 >"$out" 2>&1
code=$?
[ $code = 0 ] && [ "$(tail -n 1 "$out")" = "tokens identical: 6/6" ] &&
	grep -q '^KV cache identical: 6/6$' "$out" && grep -q '^checksum failures 0$' "$out"
result $? "a small demo restores blocks and gives the same tokens and KV bytes"
grep -q '^restore of a block p50 .*, p99 .* ms ([1-9][0-9]* blocks)' "$out" &&
	grep -q '^wake of a conversation p50 .*, p99 .* ms ([1-9][0-9]* wakes)' "$out"
result $? "of times it says of how many they are"
left_over >"$out"
[ ! -s "$out" ]
result $? "it leaves no files"

setpriv --reuid=65534 --clear-groups selftests/demo-native 6 3 >"$out" 2>&1
[ $? = 1 ] && grep -q 'needs root' "$out"
result $? "an ordinary user is told what it needs"

setsid selftests/demo-native 16 6 >"$out" 2>&1 &
demo=$!
for _ in {1..600}; do
	grep -q 'spilled' "$out" && break
	sleep 0.1
done
started=$(children $demo)
kill -TERM $demo
wait $demo
code=$?
demo=
alive=$(for pid in $started; do kill -0 "$pid" 2>/dev/null && echo "$pid"; done)
[ $code = 130 ] && [ -n "$started" ] && [ -z "$alive" ] && [ -z "$(left_over)" ]
result $? "interrupted, it ends its daemon and its engine and leaves no files"
exit $status
