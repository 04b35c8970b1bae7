#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The fast guest of the adopt case: node 1 is CPU-less memory in a tier of its own from the start.
. "$(dirname "$0")/../lib/check.sh"

tiers=/sys/devices/virtual/memory_tiering

check "node 1 is online" grep -q '^0-1$' /sys/devices/system/node/has_memory
check "node 1 has no CPU" test -z "$(cat /sys/devices/system/node/node1/cpulist)"
check "node 1 has its memory" sh -c "numactl -H | awk '/^node 1 size/ { exit !(\$4 > ${KV_NODE1_SIZE%M} - 64) }'"
check "node 1 is alone in its tier" grep -qx 1 $tiers/memory_tier*/nodelist
check "node 0 is alone in its tier" grep -qx 0 $tiers/memory_tier*/nodelist
check "NVMe drive is there" test -b /dev/nvme0n1
done_checking
