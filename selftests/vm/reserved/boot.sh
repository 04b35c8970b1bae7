#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The fast guest as the module's tests expect it: node 1 possible but empty, its range reserved.
. "$(dirname "$0")/../lib/check.sh"

check "node 1 is possible" grep -q '0-1' /sys/devices/system/node/possible
check "node 1 is not online" test ! -e /sys/devices/system/node/node1
check "its range is reserved" grep -qi "^ *${KV_NODE1_BASE#0x}-.*: Reserved" /proc/iomem
check "HMAT was read" sh -c 'dmesg | grep -q "acpi/hmat: .*Initiator-Target"'
check "NVMe drive is there" test -b /dev/nvme0n1
check "cgroup2, bpf, tracefs are mounted" sh -c 'test -e /sys/fs/cgroup/cgroup.procs &&
	test -e /sys/kernel/tracing/events && grep -q "^bpf /sys/fs/bpf" /proc/mounts'
check "root is an overlay" test "$(findmnt -no FSTYPE /)" = overlay
check "the module of this kernel can be found" modprobe -n nvme
done_checking
