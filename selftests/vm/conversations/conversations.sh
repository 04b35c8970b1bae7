#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# 100 conversations with real gaps in three tiers, one of them the module's node, some of them
# dropped: tokens and KV bytes are those of plain memory, and there were wakes, reuse, recomputes.
. "$(dirname "$0")/../lib/check.sh"

check "module" insmod "build/kmod/$(uname -r)/cxl_kv.ko" base="$KV_NODE1_BASE" size="$KV_NODE1_SIZE" node=1
selftests/conversations HOT__LIMIT=2MB WARM__LIMIT=2MB COLD__PATH=/dev/nvme0n1 TENANT_DEFAULT__COLD=7MB \
	OBJECTS__SIZE=1MB DAEMON__INTERVAL_MS=50 -- \
	--context 96 --rounds 2 --reply 1 --tokens-per-block 32 --prompt-tokens 32 --gap-scale 0.0001 2>&1 | sed 's/^/# /'
check "100 conversations parked, woken, dropped and sharing prompts say the same" test "${PIPESTATUS[0]}" = 0
check "removal" sh -c 'echo 1 >/sys/class/cxl_kv/node1/remove'
check "rmmod" rmmod cxl_kv
done_checking
