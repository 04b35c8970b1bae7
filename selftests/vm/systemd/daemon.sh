#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Installed as a user would, the unit starts the daemon beside the module; an unprivileged engine's
# tokens are those of plain memory although blocks spill and the daemon is killed in mid-run.
# shellcheck disable=SC2317 # functions are called by check
set -o pipefail
. "$(dirname "$0")/../lib/check.sh"

work=/tmp/kv-daemon-test
engine_user=(setpriv --reuid nobody --regid cxl-kv --clear-groups)
workload=(--conversations 3 --rounds 3 --context 256 --reply 16)

status() { cxl-kv status -j | jq -e "$1"; }
property() { systemctl show -P "$1" cxl-kvd; }
capabilities() { capsh --decode="$(awk '/CapEff/ { print $2 }' "/proc/$(property MainPID)/status")"; }
restarted() { [[ $(property NRestarts) == 1 && $(property ActiveState) == active ]]; }
owned() { [[ $(stat -c %G:%a "$1") == "$2" ]]; }
is() { [[ $1 == "$2" ]] || { echo "$1"; return 1; }; }

mkdir -m 777 $work
check "make install" make -s install PREFIX=/usr
check "module" insmod "build/kmod/$(uname -r)/cxl_kv.ko" node=1
check "udev gives /dev/cxl_kv to the group" within 30 owned /dev/cxl_kv cxl-kv:660
check "udev gives userfaultfd to the daemon" within 30 owned /dev/userfaultfd cxl-kvd:660

# Less memory than the 3 conversations need (384 KiB each); the spill file on the NVMe drive.
mkfs.ext4 -q /dev/nvme0n1
mkdir -p /var/lib/cxl-kv /etc/systemd/system/cxl-kvd.service.d
mount /dev/nvme0n1 /var/lib/cxl-kv
cat >/etc/systemd/system/cxl-kvd.service.d/test.conf <<UNIT
[Service]
Environment=CXL_KV_HOT__LIMIT=400KiB CXL_KV_WARM__LIMIT=400KiB CXL_KV_COLD__SIZE=256MiB
UNIT
systemctl daemon-reload
check "the unit starts" systemctl start cxl-kvd
check "it is active once it is ready" is "$(property ActiveState)" active
check "it runs as its own user" is "$(ps -o user= -p "$(property MainPID)")" cxl-kvd
check "with four capabilities" is "$(capabilities | sed 's/.*=//')" cap_ipc_lock,cap_sys_nice,cap_perfmon,cap_bpf
check "it uses the module" status '.mode == "module"'
check "node 0 is hot, node 1 warm" status '.tiers.hot.nodes == [0] and .tiers.warm.nodes == [1]'
bpf_refused=$(cxl-kv status -j | jq -r '.sampling.not_used.bpf // empty')
check "root's and the group's alone: the socket" is "$(stat -c %a /run/cxl-kv/control.sock)" 660

build/bin/kv-engine run "${workload[@]}" --memory plain --output $work/plain >/dev/null 2>&1
"${engine_user[@]}" timeout 300 build/bin/kv-engine run "${workload[@]}" --memory arena --output $work/tiered \
	>/dev/null 2>$work/engine.log &
engine=$!
check "the engine's blocks spill" within 120 status '.spill.spilled > 10'
check "module keeps the arena" status '.arenas == 1'
systemctl kill -s KILL cxl-kvd
check "killed, it is started again" within 60 restarted
check "it gets the arena back" within 30 status '.arenas == 1'
wait $engine
check "the engine ends well" is $? 0
sed 's/^/# /' $work/engine.log | tail -n 3
check "tokens and KV bytes are identical" build/bin/kv-engine compare $work/plain $work/tiered
check "nothing was lost" status '.restore.lost == 0 and .store.checksum_failures == 0'
check "stop" systemctl stop cxl-kvd
check "its programs were loaded with its own rights" test -z "$bpf_refused"
check "no BPF object stays pinned" sh -c '! find /sys/fs/bpf/cxl_kv -mindepth 1 | grep .'
check "the log has no error" sh -c '! journalctl -u cxl-kvd -p err --no-pager -q | grep .'
check "rmmod" rmmod cxl_kv
journalctl -u cxl-kvd --no-pager -o cat | tail -n 30
umount /var/lib/cxl-kv
done_checking
