#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# 100 conversations with real gaps on less memory than they need, some of them dropped: tokens and
# KV bytes are those of plain memory, and there were wakes, reuse and recomputes.
set -u
cd "$(dirname "$0")/../.." || exit 1
. selftests/lib/daemon.sh
own_daemon_needs 2>/dev/null || { echo "1..0 # SKIP needs root and userfaultfd"; exit 4; }

echo "1..1"
selftests/conversations HOT__LIMIT=8MB COLD__SIZE=256MB TENANT_DEFAULT__COLD=24MB OBJECTS__SIZE=6MB -- \
	--context 320 --rounds 4 --reply 4 --tokens-per-block 32 2>&1 | sed 's/^/# /'
report "${PIPESTATUS[0]}" "100 conversations parked, woken, dropped and sharing prompts say the same"
exit "$bad"
