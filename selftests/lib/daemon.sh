# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# A cxl-kvd of one's own, for scripts; sourced from the top of the repository.
#
#   own_daemon_needs    fails with a message where it cannot run
#   own_daemon_begin    makes $disk (spill file and logs; on the disk of the build,
#                       not a tmpfs) and $run (socket, whose path must be short);
#                       when the script exits both go, and so do the processes
#   own_daemon_test     both for a TAP script: where it cannot run, a skip and the end
#   report STATUS NAME  one line of TAP; counts in $number, and in $bad when it is not ok
#   start_daemon [KEY=VALUE...]   starts it with keys in the environment's form
#                       (HOT__LIMIT=20MB), waits until it answers; pid in $daemon;
#                       $config, where set, is its configuration file
#   status              cxl-kv status -j
#   end PID             ends a process politely, then not, and waits for it
# Sets $daemon, $number, $bad; what is in $client is ended first.

daemon=
client=
config=/dev/null
disk=
run=

own_daemon_needs() {
	local program
	if [ "$(id -u)" != 0 ]; then
		echo "needs root for userfaultfd and locked memory (sudo)" >&2
		return 1
	fi
	if [ ! -e /dev/userfaultfd ] && [ ! -e /proc/sys/vm/unprivileged_userfaultfd ]; then
		echo "this kernel has no userfaultfd (CONFIG_USERFAULTFD); Debian 12's has it" >&2
		return 1
	fi
	for program in cxl-kvd cxl-kv kv-engine; do
		if [ ! -x "build/bin/$program" ]; then
			echo "build/bin/$program is missing: run make" >&2
			return 1
		fi
	done
}

end() {
	local _
	[ -n "$1" ] || return 0
	kill "$1" 2>/dev/null
	for _ in {1..100}; do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	kill -9 "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}

own_daemon_end() {
	end "$client"
	end "$daemon"
	[ -z "$disk" ] || rm -rf "$disk"
	[ -z "$run" ] || rm -rf "$run"
}

own_daemon_begin() {
	trap own_daemon_end EXIT
	trap 'exit 130' INT TERM HUP
	mkdir -p build && disk=$(mktemp -d build/own-daemon.XXXXXX) && run=$(mktemp -d) || return 1
	export CXL_KV_SOCKET=$run/socket
}

own_daemon_test() {
	local why
	if ! why=$(own_daemon_needs 2>&1); then
		echo "1..0 # SKIP $why"
		exit 4
	fi
	own_daemon_begin || exit 1
}

number=0 bad=0
report() {
	number=$((number + 1))
	# shellcheck disable=SC2034 # the script exits with it
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; bad=1; fi
}

status() {
	build/bin/cxl-kv status -j 2>/dev/null
}

start_daemon() {
	local _
	env CXL_KV_DAEMON__SOCKET="$CXL_KV_SOCKET" CXL_KV_COLD__PATH="$PWD/$disk/spill" "${@/#/CXL_KV_}" \
		build/bin/cxl-kvd --config "$config" 2>>"$disk/daemon.log" &
	daemon=$!
	for _ in {1..100}; do
		status >/dev/null && return
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.1
	done
	cat "$disk/daemon.log" >&2
	echo "cxl-kvd did not start, its log is above" >&2
	return 1
}
