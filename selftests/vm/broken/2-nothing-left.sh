#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# After 1-hangs.sh: its processes are gone. (The harness's own timer is the one sleep there may be.)
sleeps=$(pgrep -cx sleep)
[[ $sleeps -le 1 ]] && echo "ok 1 - no sleep is left" || echo "not ok 1 - $sleeps sleeps are left"
echo 1..1
