#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Leaves a child, then never ends, deaf to SIGTERM.
trap '' TERM
sleep 1000 &
while :; do sleep 100; done
