#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The cold tier on a drive that begins to fail while the daemon runs, and on an encrypted one:
# what cannot be written stays in memory, what cannot be read is a counted miss, no byte is wrong.
# shellcheck disable=SC2317 # check() calls the functions
. "$(dirname "$0")/../lib/check.sh"

drive=/dev/nvme0n1
run=$(mktemp -d) || exit 1
export CXL_KV_SOCKET=$run/socket
sectors=$(blockdev --getsz $drive)
daemon=

# No udev runs here: libdevmapper makes the nodes itself.
export DM_DISABLE_UDEV=1
mapper() { dmsetup "$@" >&2; }
# TARGET...: what lies below /dev/mapper/kv from now on.
becomes() { mapper suspend --nolockfs --noflush kv && mapper load kv --table "0 $sectors $*" && mapper resume kv; }

start_daemon()
{
	CXL_KV_DAEMON__SOCKET=$CXL_KV_SOCKET CXL_KV_COLD__PATH=/dev/mapper/kv CXL_KV_COLD__SIZE=256MiB \
		CXL_KV_HOT__LIMIT=8MiB CXL_KV_HOT__NODES=0,1 CXL_KV_SAMPLING__SOURCE=off \
		build/bin/cxl-kvd --config /dev/null 2>>"$run/log" &
	daemon=$!
	within 60 build/bin/cxl-kv status >/dev/null || sed 's/^/# /' "$run/log"
}
end_daemon()
{
	kill "$daemon"
	wait "$daemon"
	ended=$?
}
# The pattern of replay's second block (the first is an anchor, which stays in memory).
on_drive()
{
	local mark=$'\x2a\xf8\x94\xfe\x72\xf3\x6e\x3c'
	dd if="$drive" bs=1M count=256 iflag=direct status=none | LC_ALL=C grep -qaF "$mark$mark$mark"
}
not() { ! "$@"; }
# What holds of the daemon's counters.
holds() { build/bin/cxl-kv status -j | jq -e "$1" >/dev/null; }
# TRACE JQ-CONDITION [MS]: plays the trace; its counts must meet the condition. What waits longer than
# MS gives up: a load of a drive that works takes as long as a loaded host makes it.
plays()
{
	local trace=$1; shift
	build/bin/cxl-kv replay --block 16 --timeout "${2:-10000}" -j "$trace" >"$run/counts"
	local status=$?
	cat "$run/counts"
	[ "$status" = 0 ] && jq -e "$1" "$run/counts" >/dev/null
}

# Three times over 24 MiB of blocks, of which 8 MiB fit into memory.
awk 'BEGIN { for (turn = 0; turn < 3; turn++) for (r = 0; r < 48; r++) {
	line = (turn * 48 + r) * 10
	for (b = 0; b < 32; b++) line = line " " (r * 32 + b)
	print line } }' >"$run/trace"

modprobe -a dm-mod dm-flakey dm-crypt >&2 || exit 1
mapper create kv --table "0 $sectors linear $drive 0" || exit 1
start_daemon
check "the daemon starts on a device-mapper drive" build/bin/cxl-kv status
check "a load three times its memory is served from the drive" \
	plays "$run/trace" '.blocks.wrong == 0 and .blocks.lost == 0 and .no_room == 0 and .blocks.restored > 500'

becomes flakey $drive 0 0 3600 1 error_writes
check "writes fail: what finds no room is refused, nothing is lost or wrong" \
	plays "$run/trace" '.blocks.wrong == 0 and .blocks.lost == 0 and .no_room > 0' 100
check "the failures are counted" holds '.spill.failed + .store.io_errors > 0'
check "the daemon still answers" build/bin/cxl-kv status

becomes linear $drive 0
check "the drive is back, and so is the cold tier" \
	plays "$run/trace" '.blocks.wrong == 0 and .blocks.lost == 0 and .no_room == 0 and .blocks.restored > 500'

# Reads fail half-way: when some of this load has come back from the drive, the drive goes.
restored=$(build/bin/cxl-kv status -j | jq .restore.restored)
( within 60 holds ".restore.restored > $restored + 200"; becomes error ) &
check "the drive goes in the middle of a load: misses are counted, no byte is wrong" \
	plays <(cat "$run/trace" "$run/trace" "$run/trace") '.blocks.wrong == 0' 100
wait $!
check "the daemon still answers" build/bin/cxl-kv status
becomes linear $drive 0
check "after that it serves again" \
	plays "$run/trace" '.blocks.wrong == 0 and .no_room == 0 and .blocks.restored > 500'
end_daemon
check "it ends in order" [ "$ended" = 0 ]
check "what replay wrote is on the drive" on_drive
mapper remove kv

# The recipe of cxl-kv-store(5): a key that nobody keeps.
cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 512 --key-file /dev/urandom \
	--disable-locks $drive kv >&2
blkdiscard -z -l 256MiB /dev/mapper/kv >&2
start_daemon
check "the daemon starts on an encrypted drive" build/bin/cxl-kv status
check "the load is served from it" \
	plays "$run/trace" '.blocks.wrong == 0 and .blocks.lost == 0 and .blocks.restored > 500'
end_daemon
check "it ends in order" [ "$ended" = 0 ]
check "what replay wrote cannot be found on the drive" not on_drive
mapper remove kv
done_checking
