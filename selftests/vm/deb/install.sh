#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# On a clean Debian: the packages are installed, the unit enabled, an engine runs; meanwhile the configuration
# is reloaded and the packages are upgraded. Then they are purged, and nothing is left of them.
# build/deb has them twice: of a version, and of a later one, VERSION+next.
# shellcheck disable=SC2317 # functions are called by check
set -o pipefail
. "$(dirname "$0")/../lib/check.sh"
export DEBIAN_FRONTEND=noninteractive
debs_next=$(echo build/deb/*+next)
debs=${debs_next%+next}
work=/tmp/kv-deb-test
unit=/lib/systemd/system/cxl-kvd.service
engine_user=(setpriv --reuid nobody --regid cxl-kv --clear-groups)
workload=(--conversations 3 --rounds 6 --context 256 --reply 16)
gaps=(--gaps selftests/engine/gaps.txt --gap-scale 1) # so that it lasts beyond the upgrade

status() { cxl-kv status -j | jq -e "$1"; }
property() { systemctl show -P "$1" cxl-kvd; }
is() { [[ $1 == "$2" ]] || { echo "$1"; return 1; }; }
no_output() { [[ -z $("$@" 2>&1 | tee /dev/stderr) ]]; }
owned() { [[ $(stat -c %G:%a "$1") == "$2" ]]; }
restarted() { [[ $(property MainPID) != "$1" && $(property ActiveState) == active ]]; }
said() { journalctl -u cxl-kvd --no-pager -o cat | grep -q "$1"; }
# All of the root but for what is no file of anybody, logs and caches, dpkg's own books and their backups.
files() {
	find / \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path "$PWD" -o -path /var/log \
		-o -path /var/cache -o -path /var/tmp \) -prune -o -print |
		grep -vE '^/var/lib/dpkg/.*-old$|^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|^/etc/\.pwd\.lock$' | sort
}
exposure() { systemd-analyze security --no-pager cxl-kvd | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p'; }
limit() { awk -v name="$1" 'index($0, name) == 1 { print $4 }' "/proc/$(property MainPID)/limits"; }

mkdir -m 777 $work
files >$work/before
check "the packages install" dpkg -i "$debs"/{cxl-kv_,libcxl-kv0_,libcxl-kv-dev_}*.deb
check "not enabled, not started by that" is "$(systemctl is-enabled cxl-kvd):$(property ActiveState)" disabled:inactive
check "users and groups are there" sh -c 'id cxl-kvd && getent group cxl-kv'
check "udev gives userfaultfd to the daemon" within 30 owned /dev/userfaultfd cxl-kvd:660
check "systemd-analyze verify says nothing" no_output systemd-analyze verify --man=no $unit
check "systemd-analyze security: $(exposure), at most 2.0" awk -v e="$(exposure)" 'BEGIN { exit !(e != "" && e <= 2.0) }'

mkdir -p /etc/cxl-kv/cxl-kvd.toml.d
cat >/etc/cxl-kv/cxl-kvd.toml.d/test.toml <<'TOML'
[hot]
limit = "800KiB"
[warm]
limit = "0"
[cold]
size = "64MiB"
TOML
check "systemctl enable --now" systemctl enable --now cxl-kvd
check "it is active once it is ready" is "$(property ActiveState):$(systemctl is-enabled cxl-kvd)" active:enabled
check "it runs as its own user" is "$(stat -c %U "/proc/$(property MainPID)")" cxl-kvd
check "it may lock all of its memory" is "$(limit "Max locked memory")" unlimited
check "the kernel kills others first" is "$(cat "/proc/$(property MainPID)/oom_score_adj")" -900
check "its own memory is kept" is "$(cat /sys/fs/cgroup/system.slice/cxl-kvd.service/memory.min)" $((64 << 20))
check "the watchdog is on" is "$(property WatchdogUSec)" 30s
check "doctor finds nothing that does not work" cxl-kv doctor

build/bin/kv-engine run "${workload[@]}" --memory plain --output $work/plain >/dev/null 2>&1
"${engine_user[@]}" timeout 500 build/bin/kv-engine run "${workload[@]}" "${gaps[@]}" --memory arena --output $work/tiered \
	>/dev/null 2>$work/engine.log &
engine=$!
check "an unprivileged engine's blocks spill" within 200 status '.spill.spilled > 10'

pid=$(property MainPID)
echo 'queue_depth = 16' >>/etc/cxl-kv/cxl-kvd.toml.d/test.toml
printf '[policy]\nalpha = 0.3\n' >/etc/cxl-kv/cxl-kvd.toml.d/policy.toml
check "systemctl reload" systemctl reload cxl-kvd
check "what can change live does" within 30 said 'policy.alpha is 0.3 now'
check "what takes a restart is named" said 'cold.queue_depth stays 32: 16 takes a restart'
echo 'alpha = nonsense' >>/etc/cxl-kv/cxl-kvd.toml.d/policy.toml
check "a reload with an error fails" sh -c '! systemctl reload cxl-kvd'
check "and says where" said 'policy.toml:3: policy.alpha'
rm /etc/cxl-kv/cxl-kvd.toml.d/policy.toml
check "the daemon went on" is "$(property MainPID):$(property ActiveState)" "$pid:active"

check "the packages are upgraded below the engine" dpkg -i "$debs_next"/{cxl-kv_,libcxl-kv0_,libcxl-kv-dev_}*.deb
check "the daemon was restarted" within 60 restarted "$pid"
check "it is enabled as before" is "$(systemctl is-enabled cxl-kvd)" enabled
check "it gets the arena and its spilled blocks back" within 60 status '.arenas == 1 and .tiers.cold.bytes > 0'
wait $engine
check "the engine ends well" is $? 0
sed 's/^/# /' $work/engine.log | tail -n 3
check "tokens and KV bytes are identical" build/bin/kv-engine compare $work/plain $work/tiered
check "nothing was lost" status '.restore.lost == 0 and .store.checksum_failures == 0'
check "the journal has no error but the broken configuration" \
	sh -c "! journalctl -u cxl-kvd -p err --no-pager -q -o cat | grep -vE 'policy.toml:3|Reload failed'"

check "packages are purged" dpkg --purge libcxl-kv-dev libcxl-kv0 cxl-kv
check "the daemon is gone" sh -c '! pgrep -x cxl-kvd'
check "no user, no group" sh -c '! getent passwd cxl-kvd && ! getent group cxl-kv cxl-kvd'
files >$work/after
check "nothing is left, nothing is missing" diff $work/before $work/after
check "no unit has failed" sh -c '! systemctl --failed --no-legend | grep .'
journalctl -u cxl-kvd --no-pager -o cat | tail -n 30
done_checking
