#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The module finds a node that is online and has no CPUs: it shows it, and changes nothing.
# shellcheck disable=SC2317 # functions are called by check
. "$(dirname "$0")/../lib/check.sh"

module=build/kmod/$(uname -r)/cxl_kv.ko
node=/sys/class/cxl_kv/node1

is() { [[ $(cat "$1") == "$2" ]]; }

check "insmod" insmod "$module"
check "only node 1 is adopted" test "$(cd /sys/class/cxl_kv && echo node*)" = node1
check "origin" is $node/origin adopted
check "state" is $node/state online
check "base" is $node/base "$KV_NODE1_BASE"
check "distance comes from HMAT" is $node/adistance_source hmat
check "its tier is the one shown" is "/sys/devices/virtual/memory_tiering/memory_tier$(cat $node/tier)/nodelist" 1
check "it is not ours to remove" sh -c "! echo 1 >$node/remove"
check "rmmod" rmmod cxl_kv
check "the node is still there" grep -qw 0-1 /sys/devices/system/node/has_memory
check "node 0 has CPUs and is not adopted" sh -c "! insmod $module node=0"
check "one node can be named" insmod "$module" node=1
check "rmmod again" rmmod cxl_kv
done_checking
