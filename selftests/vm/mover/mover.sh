#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# mover_test with node 1 added by the module. Its last test removes the node again.
insmod "build/kmod/$(uname -r)/cxl_kv.ko" base="$KV_NODE1_BASE" size="$KV_NODE1_SIZE" node=1 >&2 || exit 1
build/vmtest/mover/mover_test
status=$?
rmmod cxl_kv >&2 || status=1
exit $status
