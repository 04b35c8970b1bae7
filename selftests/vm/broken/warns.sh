#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# What a WARN_ON in the kernel would print.
echo "<4>WARNING: CPU: 0 PID: 1 at harness test" >/dev/kmsg
