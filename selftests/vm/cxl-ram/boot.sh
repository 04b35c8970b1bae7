#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The CXL guest of the adopt case: kmem has made the region a node in a tier of its own.
. "$(dirname "$0")/../lib/check.sh"

check "kmem holds the region" grep -q 'System RAM (kmem)' /proc/iomem
check "node 1 has memory" grep -qx 0-1 /sys/devices/system/node/has_memory
check "node 1 has no CPU" test -z "$(cat /sys/devices/system/node/node1/cpulist)"
check "node 1 is alone in its tier" grep -qx 1 /sys/devices/virtual/memory_tiering/memory_tier*/nodelist
check "pages of node 1 can be used" numactl -m 1 dd if=/dev/zero of=/dev/shm/probe bs=64k count=4 status=none
check "a drive reaches them" numactl -m 1 dd if=/dev/nvme0n1 of=/dev/null bs=1M count=4 iflag=direct status=none
rm -f /dev/shm/probe
done_checking
