#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# A short engine run whose warm tier is the emulated CXL device, as a node that kmem made and the
# module adopts.
. "$(dirname "$0")/../lib/check.sh"

check "tokens are those of plain memory" selftests/vm/guest/demo --short 2 256 3 16
check "the node was adopted" grep -qx adopted /sys/class/cxl_kv/node1/origin
check "rmmod leaves it" rmmod cxl_kv
check "node 1 still has its memory" grep -qw 1 /sys/devices/system/node/has_memory
done_checking
