#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# A long-term pin of a page of a node that is memory for the kernel, too: the page stays there.
. "$(dirname "$0")/../lib/check.sh"

CXL_KV_PINNED_ON=1 build/vmtest/onlining/pin_test >/run/pin.log 2>&1
pinned=$?
sed 's/^/# /' /run/pin.log
check "a pin leaves a page of a kernel node where it is, for good" test $pinned = 0
done_checking
