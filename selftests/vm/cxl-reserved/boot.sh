#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The CXL guest as the module's tests expect it: a committed region that no driver holds.
. "$(dirname "$0")/../lib/check.sh"

region=/sys/bus/cxl/devices/region0

check "a region is committed" grep -qx 1 $region/commit
check "it has the device's memory" sh -c "[ \$((\$(cat $region/size))) = \$((${KV_NODE1_SIZE%M} << 20)) ]"
check "nobody holds it" sh -c '! grep -A1 "CXL Window" /proc/iomem | grep -q dax && ! grep -q "^kmem" /proc/modules'
check "node 1 is not online" test ! -e /sys/devices/system/node/node1
check "node 1 is possible" grep -q '0-[1-9]' /sys/devices/system/node/possible
done_checking
