#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# cxl-kv-online: the zones of each policy, and what a long-term pin does to a page there.
# shellcheck disable=SC2317 # functions are called by check
. "$(dirname "$0")/../lib/check.sh"

module=build/kmod/$(uname -r)/cxl_kv.ko
online=systemd/cxl-kv-online
class=/sys/class/cxl_kv/node1
node=/sys/devices/system/node/node1
policy=/sys/devices/system/memory/auto_online_blocks

load() { $online "$1" insmod "$module" base="$KV_NODE1_BASE" size="$KV_NODE1_SIZE" node=1; }
zones() { cat "$node"/memory[0-9]*/valid_zones | awk '{ print $1 }' | sort | uniq -c | awk '{ print $2 $1 }' | xargs; }
has_zones() { [[ $(zones) == "$1" ]] || { echo "zones: $(zones)"; return 1; }; }
is() { [[ $(cat "$1") == "$2" ]]; }

pin() {
	CXL_KV_PINNED_ON=$1 build/vmtest/onlining/pin_test >/run/pin.log 2>&1
	local status=$?
	sed 's/^/# /' /run/pin.log
	return $status
}

echo online >$policy
blocks=$((${KV_NODE1_SIZE%M} * 1024 * 1024 / 0x$(cat /sys/devices/system/memory/block_size_bytes)))

check "a policy that is none is refused" sh -c "! $online sometimes true"
check "more than all of it is refused" sh -c "! $online split=101 true"
check "a command that fails fails" sh -c "! $online movable false"
check "and the system's policy is as before" is $policy online

# A second run begins while the first is under way, and ends after it.
two_runs()
{
	mkfifo /run/first /run/second
	$online movable sh -c 'touch /run/one; read -r _ </run/first' & local one=$!
	within 30 test -e /run/one || return
	$online movable sh -c 'touch /run/two; read -r _ </run/second' & local two=$!
	within 30 sh -c 'test -e /run/two || grep -q -e "-> FLOCK" /proc/locks' || return
	echo go >/run/first
	wait "$one" || return
	echo go >/run/second
	wait "$two" && is "$policy" online
}
check "two runs at once leave the system's policy as before" two_runs
echo online >$policy

check "movable" load movable
check "all blocks are movable" has_zones "Movable$blocks"
check "the system's policy is as before" is $policy online
pin 0
check "a pin takes a page of movable memory to DRAM" test $? = 0
check "the node can be removed" sh -c "echo 1 >$class/remove"
check "rmmod" rmmod cxl_kv

# What the kernel puts on the first half may keep the node, and with it the module.
touch /run/kv-keeps-module
check "split in halves" load split=50
check "half of the blocks is for the kernel" has_zones "Movable$((blocks / 2)) Normal$((blocks / 2))"
done_checking
