#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# mover_test with node 1 added by the module. Its last test removes the node again.
# Kernel allocations on the node would keep it from being removed.
echo online_movable >/sys/devices/system/memory/auto_online_blocks
insmod "build/kmod/$(uname -r)/cxl_kv.ko" base="$KV_NODE1_BASE" size="$KV_NODE1_SIZE" node=1 >&2 || exit 1
build/vmtest/mover/mover_test
status=$?
rmmod cxl_kv >&2 || status=1
exit $status
