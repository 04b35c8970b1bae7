#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The examples of keyed objects do what they say, from C and by ctypes.
set -u
cd "$(dirname "$0")/../.." || exit 1
. selftests/lib/daemon.sh
own_daemon_needs || { echo "1..0 # SKIP needs root and userfaultfd"; exit 4; }
own_daemon_begin || exit 1

number=0 failed=0
result() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else
		echo "not ok $number - $2"
		awk '{ print "# " $0 }' "$disk/said" "$disk/daemon.log"
		failed=1
	fi
}

start_daemon HOT__LIMIT=16MiB COLD__SIZE=64MiB OBJECTS__SIZE=16MiB || exit 1
build/examples/store >"$disk/said" 2>&1 && grep -q '^0 of 8 blocks were found: Success' "$disk/said"
result $? "store.c finds nothing at first, and stores"
build/examples/store >"$disk/said" 2>&1 && grep -q '^8 of 8 blocks were found: Success' "$disk/said"
result $? "store.c finds all the second time"
if command -v python3 >/dev/null; then
	LD_LIBRARY_PATH=build/lib python3 docs/examples/store.py >"$disk/said" 2>&1 &&
		grep -q '^found 1 tier 1 same True' "$disk/said"
	result $? "store.py by ctypes"
else
	number=$((number + 1))
	echo "ok $number - store.py # SKIP no python3 here"
fi
echo "1..$number"
exit "$failed"
