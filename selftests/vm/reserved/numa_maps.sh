#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# What the daemon says about the tiers is what the kernel says about the client's pages: status and
# /proc/PID/numa_maps agree within 1 % at three moments of a run.
# shellcheck disable=SC2317 # functions are called by check
set -o pipefail
. "$(dirname "$0")/../lib/check.sh"
. selftests/lib/daemon.sh

# The pages of the client's arena on a node, in bytes.
mapped_on() {
	awk -v key="N$1=" '/memfd:cxl_kv_memory/ { for (i = 1; i <= NF; i++) if (index($i, key) == 1)
		pages += substr($i, length(key) + 1) } END { print pages * 4096 }' "/proc/$client/numa_maps"
}
moves() { status | jq -c '[.mover.promote.attempted, .mover.demote.attempted, .spill, .restore, .made, .tiers]'; }
near() { (($1 - $2 <= $2 / 100 && $2 - $1 <= $2 / 100)) || { echo "$1 mapped, $2 by status"; return 1; }; }
reached() { status | jq -e "$1"; }

# With the client stopped, and nothing on its way before and after numa_maps is read.
agree() {
	local before hot warm i

	kill -STOP "$client"
	for ((i = 0; i < 100; i++)); do
		before=$(moves)
		hot=$(mapped_on 0) warm=$(mapped_on 1)
		[[ $(moves) != "$before" ]] || break
	done
	kill -CONT "$client"
	((i < 100)) || { echo "the pages never came to rest"; return 1; }
	near "$hot" "$(jq '.[-1].hot.bytes' <<<"$before")" && near "$warm" "$(jq '.[-1].warm.bytes' <<<"$before")"
}

own_daemon_needs && own_daemon_begin || exit 1
# Kernel allocations on the node would keep it from being removed.
echo online_movable >/sys/devices/system/memory/auto_online_blocks
insmod "build/kmod/$(uname -r)/cxl_kv.ko" base="$KV_NODE1_BASE" size="$KV_NODE1_SIZE" node=1 || exit 1
start_daemon HOT__LIMIT=1MB WARM__LIMIT=1MB COLD__PATH=/dev/nvme0n1 || exit 1
build/bin/kv-engine run --memory arena --conversations 8 --context 512 --rounds 6 --reply 32 >"$disk/engine.log" 2>&1 &
client=$!

check "blocks are made" within 120 reached '.tiers.warm.blocks > 20'
check "numa_maps agrees when few blocks exist" agree
check "blocks spill" within 120 reached '.spill.spilled > 20'
check "numa_maps agrees when blocks spill" agree
check "pages are promoted" within 200 reached '.mover.promote.moved > 50'
check "numa_maps agrees when pages are promoted" agree
end "$client"
end "$daemon"
client='' daemon=''
check "removal" sh -c 'echo 1 >/sys/class/cxl_kv/node1/remove'
check "rmmod" rmmod cxl_kv
done_checking
