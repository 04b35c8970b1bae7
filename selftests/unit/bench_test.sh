#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# cxl-kv bench: what it measured can be read by plan, what it could not is named, nothing stays.
set -u
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d -p build) || exit 1
trap 'rm -rf "$tmp"' EXIT
export CXL_KV_SOCKET=$tmp/none
number=0 status=0
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}
bench() { build/bin/cxl-kv bench --memory 16 --file 16 --time 0.05 "$@"; }

bench --no-drive -j -o "$tmp/memory.json" >"$tmp/printed.json" 2>"$tmp/err"
report $? "memory alone"
jq -e '(.nodes | length) > 0 and all(.nodes[]; .read_ns > 0 and .read_MBps > 0 and .write_MBps > 0
	and .copy_MBps > 0 and (.tier == "hot" or .tier == "warm")) and (has("cold") | not)
	and .failed == []' "$tmp/printed.json" >/dev/null
report $? "every node has its figures"
diff "$tmp/memory.json" "$tmp/printed.json" >/dev/null
report $? "the file holds what is printed"
[ ! -s "$tmp/err" ]
report $? "no progress where nobody looks"

bench -s "$tmp/nowhere" -j >"$tmp/printed.json" 2>"$tmp/err"
[ $? = 1 ] && grep -q 'nowhere.*No such file' "$tmp/err" &&
	jq -e '(.nodes | length) > 0 and .failed[0].what == "cold"' "$tmp/printed.json" >/dev/null
report $? "a folder that is not there fails the drive and nothing else"

mkdir "$tmp/drive"
if bench -s "$tmp/drive" -j -o "$tmp/all.json" >/dev/null 2>"$tmp/err"; then
	jq -e '.cold.write_MBps > 0 and .cold.read_MBps > 0 and .cold.block_read_p50_ns > 0 and
		.cold.block_read_p99_ns >= .cold.block_read_p50_ns' "$tmp/all.json" >/dev/null
	report $? "the drive has its figures"
else
	number=$((number + 1))
	echo "ok $number - the drive # SKIP $(head -n 1 "$tmp/err")"
	cp "$tmp/memory.json" "$tmp/all.json"
fi
[ -z "$(ls -A "$tmp/drive")" ]
report $? "nothing stays on the drive"

build/bin/cxl-kv plan --measured "$tmp/all.json" | grep -q '^measured    hot, read .* ns$'
report $? "plan takes the figures and calls them measured"
! bench --block 5 2>"$tmp/err" >/dev/null && grep -q -- '--block.*multiple of 4' "$tmp/err"
report $? "a block that no drive reads is refused"
echo "1..$number"
exit $status
