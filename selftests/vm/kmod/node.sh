#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The module's nodes: what it refuses and says, a hot-added node in a tier of its own, and removal.
# shellcheck disable=SC2317 # functions are called by check
. "$(dirname "$0")/../lib/check.sh"

module=build/kmod/$(uname -r)/cxl_kv.ko
class=/sys/class/cxl_kv
tiers=/sys/devices/virtual/memory_tiering
range="base=$KV_NODE1_BASE size=$KV_NODE1_SIZE node=1"

# PATTERN PARAMETERS...: insmod fails, and the kernel's log says why.
refused()
{
	local why=$1; shift

	dmesg -C
	insmod "$module" "$@" && return 1
	dmesg | grep "cxl_kv: $why"
}

is() { [[ $(cat "$1") == "$2" ]]; }

check "a range off the memory block size is refused" refused "base=0x.*multiples of the memory block size" \
	base=0x140001000 size=128M node=1
check "a size of zero is refused" refused "base=0x.*multiples" base="$KV_NODE1_BASE" size=0 node=1
check "a range that wraps around is refused" refused "base=0x.*multiples" \
	base=0xfffffffff8000000 size=0x10000000 node=1
check "a node with CPUs is refused" refused "node=0: has CPUs" base="$KV_NODE1_BASE" size=128M node=0
check "an impossible node is refused" refused "node=77: not among" base="$KV_NODE1_BASE" size=128M node=77
check "a negative node is refused" refused "node=-2: not among" base="$KV_NODE1_BASE" size=128M node=-2
check "a range without a size is refused" refused "size=, and node= where given" base="$KV_NODE1_BASE"
check "two ranges with one node are refused" refused "size=, and node= where given" \
	base="$KV_NODE1_BASE,$KV_NODE1_BASE" size=128M,128M node=1
check "a range that firmware knows no node for is refused" refused "base=.*give node=" \
	base=0x7000000000 size=128M
check "a held range names its holder" refused '.* is held: it is System RAM' base=0x100000000 size=128M node=1
check "a node that is not online is not adopted" refused "node=1: only a node" node=1
check "nothing stayed loaded" test ! -d /sys/module/cxl_kv
check "no range of ours is left" sh -c '! grep -q cxl_kv /proc/iomem'

check "insmod without a node" insmod "$module"
check "rmmod" rmmod cxl_kv

# Memory for the kernel's own use cannot be moved away: a node that must be removable is all movable.
online() { echo "$1" >/sys/devices/system/memory/auto_online_blocks; }
online online_movable

check "insmod with a range, its node by firmware" insmod "$module" base="$KV_NODE1_BASE" size="$KV_NODE1_SIZE"
check "device node is for root and its group" test "$(stat -c %a /dev/cxl_kv)" = 660
check "node 1 has its memory" grep -qw 1 /sys/devices/system/node/has_memory
check "it is alone in a tier" is "$tiers/memory_tier$(cat $class/node1/tier)/nodelist" 1
check "base" is $class/node1/base "$KV_NODE1_BASE"
check "size" is $class/node1/size_bytes $((${KV_NODE1_SIZE%M} << 20))
check "distance comes from HMAT" is $class/node1/adistance_source hmat
check "origin" is $class/node1/origin added
check "performance comes from HMAT" is $class/node1/performance_source hmat
check "read latency" is $class/node1/read_latency_ns 300
check "write latency" is $class/node1/write_latency_ns 300
check "read bandwidth" is $class/node1/read_bandwidth_MBps 51200
check "write bandwidth" is $class/node1/write_bandwidth_MBps 51200
check "state" is $class/node1/state online
check "rmmod is refused" sh -c '! rmmod cxl_kv'
check "removal wants a 1" sh -c "! echo 0 >$class/node1/remove"
check "removal" sh -c "echo 1 >$class/node1/remove"
check "a second removal says there is nothing" sh -c "! echo 1 >$class/node1/remove"
check "state afterwards" is $class/node1/state removed
check "the node is gone" test ! -e /sys/devices/system/node/node1
check "rmmod after removal" rmmod cxl_kv

# shellcheck disable=SC2086
check "a given distance wins" insmod "$module" $range adistance=1000
check "and says so" is $class/node1/adistance_source given
check "its tier is the one shown" is $tiers/memory_tier7/nodelist 1
check "removal again" sh -c "echo 1 >$class/node1/remove"
check "rmmod again" rmmod cxl_kv

one_round()
{
	local sum

	# shellcheck disable=SC2086
	insmod "$module" $range || return
	numactl -m 1 head -c 32M /dev/urandom >/dev/shm/live
	sum=$(md5sum </dev/shm/live)
	# A little less: each CPU counts on its own for a while.
	numastat -m 2>/dev/null | awk '/^Shmem/ { exit !($3 > 28) }' || { echo "not on node 1"; return 1; }
	rmmod cxl_kv 2>/dev/null && { echo "rmmod was not refused"; return 1; }
	echo 1 >"$class/node1/remove" || return
	[[ $(md5sum </dev/shm/live) == "$sum" ]] || { echo "live pages changed"; return 1; }
	grep -c . /proc/iomem || return
	rmmod cxl_kv
}

for ((i = 1; i <= 8; i++)); do
	check "round $i" one_round
done
rm -f /dev/shm/live
online online
done_checking
