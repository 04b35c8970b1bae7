#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The test runner itself: what it counts as passed, failed and skipped, and when it fails.
set -u
run=$(realpath "$(dirname "$0")/../run")
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset CXL_KV_RUN_TOTALS

number=0 status=0
# expect NAME EXIT "LAST TWO LINES, JOINED BY /" "SHELL CODE OF THE PROGRAM" [PATTERN IN THE OUTPUT]
expect() {
	local out got last
	printf '#!/bin/bash\n%s\n' "$4" >"$tmp/program"
	chmod +x "$tmp/program"
	out=$("$run" -t 1 "$tmp/program" 2>&1)
	got=$?
	last=$(tail -n 2 <<<"$out" | paste -sd/)
	number=$((number + 1))
	if [ $got = "$2" ] && [ "$last" = "$3" ] && grep -q -- "${5-}" <<<"$out"; then
		echo "ok $number - $1"
	else
		echo "not ok $number - $1"
		echo "# exit $got, wanted $2; wanted last lines $3"
		awk '{ print "# " $0 }' <<<"$out"
		status=1
	fi
}

echo "TAP version 13"
expect "passing tests" 0 "0 skipped/2 passed, 0 failed" 'echo 1..2; echo ok 1; echo ok 2'
expect "a failing test, with what it said before and after" 1 "0 skipped/1 passed, 1 failed" \
	'echo 1..2; echo "# before"; echo "not ok 1 - x"; echo "# after"; echo ok 2; exit 1' 'before'
expect "what a passing test says is not shown" 1 "0 skipped/1 passed, 1 failed" \
	'echo secret; echo ok 1; echo not ok 2; exit 1' '^    not ok 2$'
expect "a program that dies half-way" 1 "0 skipped/1 passed, 1 failed" \
	'echo 1..3; echo ok 1; kill -SEGV $$' '2 of 3 planned tests did not run'
expect "every test passed but the exit status" 1 "0 skipped/1 passed, 1 failed" \
	'echo 1..1; echo ok 1; exit 3' 'exit status 3'
expect "no TAP, good exit" 0 "0 skipped/1 passed, 0 failed" 'echo hello'
expect "no TAP, bad exit" 1 "0 skipped/0 passed, 1 failed" 'echo hello; exit 7' 'hello'
expect "only skipped is nothing run: exit status 4" 1 "1 skipped/0 passed, 0 failed" 'exit 4'
expect "only skipped is nothing run: plan" 1 "1 skipped/0 passed, 0 failed" \
	'echo "1..0 # SKIP no root"' 'no root'
expect "one skipped of two" 0 "1 skipped/1 passed, 0 failed" \
	'echo 1..2; echo "ok 1 - a # SKIP why"; echo ok 2' 'why'
expect "no end" 1 "0 skipped/0 passed, 1 failed" 'sleep 60' 'no end within 1 s'
expect "a program that is not there" 1 "0 skipped/0 passed, 1 failed" 'exec /nowhere'

out=$("$run" 2>&1)
if [ $? = 1 ] && [ "$(tail -n 1 <<<"$out")" = "0 passed, 0 failed" ]; then
	echo "ok 13 - no program at all is a failure"
else
	echo "not ok 13 - no program at all is a failure"
	status=1
fi

# Of the scripts beside it: a wrong number or word is refused before anything begins.
refused=0
for calls in abc 0 -1 1e6 0x10 "" 07; do
	timeout 20 "${run%/*}/vm/check-debug-kernel" fuzz "$calls" >/dev/null 2>"$tmp/said"
	if [ $? != 2 ] || ! grep -q 'fuzz CALLS' "$tmp/said"; then
		refused=1
		echo "# fuzz '$calls'"
	fi
done
if [ $refused = 0 ]; then
	echo "ok 14 - check-debug-kernel fuzz takes a number of calls"
else
	echo "not ok 14 - check-debug-kernel fuzz takes a number of calls"
	status=1
fi

# Within a `make` of somebody else's, too.
out=$(env -u MAKEFLAGS -u MAKELEVEL timeout 20 make -C "${run%/*}/.." demo DEMO_GUEST=nonsense 2>&1)
if [ $? = 2 ] && grep -q "DEMO_GUEST is fast or cxl" <<<"$out" && ! grep -qE "^  |deps:" <<<"$out"; then
	echo "ok 15 - make demo knows its guests before it builds"
else
	echo "not ok 15 - make demo knows its guests before it builds"
	awk '{ print "# " $0 }' <<<"$out"
	status=1
fi
echo 1..15
exit $status
