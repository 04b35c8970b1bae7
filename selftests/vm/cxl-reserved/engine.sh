#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# A short engine run whose warm tier is the emulated CXL device, as the module takes it.
. "$(dirname "$0")/../lib/check.sh"

# Kernel allocations on the node would keep it from being removed.
echo online_movable >/sys/devices/system/memory/auto_online_blocks
check "tokens are those of plain memory" selftests/vm/guest/demo --short 2 256 3 16
check "the module is still loaded" grep -q '^cxl_kv ' /proc/modules
check "the node can be removed" sh -c 'echo 1 >/sys/class/cxl_kv/node1/remove'
check "rmmod" rmmod cxl_kv
done_checking
