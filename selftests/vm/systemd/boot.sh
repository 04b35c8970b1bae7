#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# systemd and udev run in the guest, and nothing of what the host has enabled.
. "$(dirname "$0")/../lib/check.sh"

check "systemd is the first process" grep -q systemd /proc/1/comm
check "it runs" test "$(systemctl is-system-running)" = starting
check "udev runs" systemctl is-active systemd-udevd
check "a unit can be started" systemd-run --wait --quiet true
check "no unit has failed" sh -c '! systemctl --failed --no-legend | grep .'
done_checking
