#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The module takes a committed region that no driver holds: a node in a tier of its own, used, removed.
# shellcheck disable=SC2317 # functions are called by check
. "$(dirname "$0")/../lib/check.sh"

module=build/kmod/$(uname -r)/cxl_kv.ko
region=/sys/bus/cxl/devices/region0
node=/sys/class/cxl_kv/node1

is() { [[ $(cat "$1") == "$2" ]]; }

# Pages of the endpoint hold what was written, also after they had to leave it.
live_pages()
{
	local sum

	numactl -m 1 head -c 4M /dev/urandom >/dev/shm/live || return
	sum=$(md5sum </dev/shm/live)
	echo 1 >"$node/remove" || return
	[[ $(md5sum </dev/shm/live) == "$sum" ]]
}

echo online_movable >/sys/devices/system/memory/auto_online_blocks
check "insmod with the region's range" insmod "$module" base="$(cat $region/resource)" size="$(cat $region/size)"
check "node 1 is online" is $node/state online
check "it is alone in its tier" is "/sys/devices/virtual/memory_tiering/memory_tier$(cat $node/tier)/nodelist" 1
check "distance is known, and where from" grep -Eq '^(hmat|default)$' $node/adistance_source
check "live pages survive the removal" live_pages
check "rmmod" rmmod cxl_kv
check "the region is as it was" is $region/commit 1
rm -f /dev/shm/live
done_checking
