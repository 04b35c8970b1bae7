#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
echo 1..2
echo "ok 1 - one is one"
echo "not ok 2 - two is three"
exit 1
