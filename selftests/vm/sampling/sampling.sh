#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Samples and BPF with the daemon and the module: counters that grow, programs by name, nothing left
# behind; and a hot set that is found without hints.
# shellcheck disable=SC2317,SC2154 # functions are called by check; $run and $disk come from daemon.sh
. "$(dirname "$0")/../lib/check.sh"
. selftests/lib/daemon.sh

pins=/sys/fs/bpf/cxl_kv
export CXL_KV_SAMPLING__INTERVAL_MS=$((1000 * ${VM_SLOW:-1})) # hot_set_test reads it too

# Sum of a field over all heads, as bpftool prints it.
sum_of() { bpftool -j map dump pinned $pins/heads | jq "[.[].formatted.value.$1] | add // 0"; }
grows() { (($(sum_of "$1") > $2)); }
has_program() { bpftool prog show name "$1" | grep -q "name $1"; }
no_program() { ! has_program "$1"; }
field() { status | jq -e "$1" >/dev/null; }

# Kernel allocations on the node would keep it from being removed.
echo online_movable >/sys/devices/system/memory/auto_online_blocks
insmod "build/kmod/$(uname -r)/cxl_kv.ko" base="$KV_NODE1_BASE" size="$KV_NODE1_SIZE" node=1 || exit 1
own_daemon_begin || exit 1
start_daemon HOT__LIMIT=4MiB WARM__LIMIT=512MiB COLD__SIZE=64MiB SAMPLING__FLUSH_TLB=true SAMPLING__CPU_PERMIL=200 \
	MOVER__LATENCY_GATE=false || exit 1 # an emulator has no latency of nodes

check "the daemon is the module's manager" field '.mode == "module"'
check "the source is the module" field '.sampling.source == "module"'
check "why not the PMU is said" field '.sampling.not_used.pmu | length > 0'
for program in on_module_access on_page_fault on_migrate; do
	check "bpftool shows $program" has_program $program
done

build/bin/kv-engine run --memory arena --conversations 2 --rounds 2 --context 256 --reply 16 \
	--output "$disk/out" >"$disk/engine.log" 2>&1 &
client=$!
check "per-head counters are printed by name" within 60 grows samples 0
check "events are counted by CPU" field '[.sampling.by_cpu[].events] | add > 0'
check "and what was lost or throttled" field '.sampling.by_cpu | length == 2 and all(has("lost") and has("throttled"))'
wait "$client"
ended=$?
client=
check "the engine ends well" test $ended = 0

# The engine sends no PHASE. A block holds 64 tokens, so the ratio of ten pages read to one written
# is out of reach below 640 tokens of context. The reply is longer than it takes to tell, at six seconds an interval.
build/bin/kv-engine run --memory arena --conversations 1 --rounds 1 --context 2048 --reply 1000 \
	--output "$disk/out" >"$disk/engine.log" 2>&1 &
client=$!
check "prefill is told by samples alone" within 90 field '.phases.prefill == 1'
reads=$(sum_of reads)
check "per-head counters grow" within 60 grows reads "$reads"
check "decode is told by samples alone" within 180 field '.phases.decode == 1'
end $client
client=

build/vmtest/sampling/hot_set_test >"$disk/hot_set.log" 2>&1
hot_set=$?
sed 's/^/# /' "$disk/hot_set.log"
check "a hot set is found without hints" test $hot_set = 0

build/vmtest/sampling/silent_client_test >"$disk/silent.log" 2>&1
silent=$?
sed 's/^/# /' "$disk/silent.log"
check "each CPU is seen, the interval follows what changes, and scores of who is stopped decay" test $silent = 0

build/vmtest/sampling/pmu_test >"$disk/pmu.log" 2>&1
pmu=$?
sed 's/^/# /' "$disk/pmu.log"
check "an event that is held is counted" test $pmu = 0
end "$daemon"
daemon=
check "nothing stays pinned" test ! -e $pins
for program in on_module_access on_page_fault on_migrate; do
	check "$program is gone" within 10 no_program $program
done
check "the node can be removed" sh -c 'echo 1 >/sys/class/cxl_kv/node1/remove'
check "the module unloads" rmmod cxl_kv
done_checking
