# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Reads what the guest's run-job writes and turns it into one TAP stream on stdout. Sourced by ../run.
# Never waits longer than a test's deadline plus a margin: a guest that is silent so long is stuck.
# shellcheck disable=SC2154 # name, log, out, deadline, boot_deadline, margin: set by ../run

number=0
failed=0

result()
{
	number=$((number + 1))
	[[ $1 == ok ]] || failed=$((failed + 1))
	echo "$1 $number - $2"
}

note() { echo "# vm: $*" >&2; }

# The test's own lines, renumbered and prefixed with its name; what is no TAP becomes a comment.
test_line()
{
	local line=$1 plain='^(not ok|ok)( +[0-9]+)?( +-)? ?(.*)$'

	if [[ $line =~ $plain ]]; then
		result "${BASH_REMATCH[1]}" "$test: ${BASH_REMATCH[4]}"
		results=$((results + 1))
		[[ ${BASH_REMATCH[1]} == ok ]] || bad=$((bad + 1))
	elif [[ $line =~ ^1\.\.([0-9]+) ]]; then
		plan=${BASH_REMATCH[1]}
	elif [[ $line != "TAP version"* ]]; then
		echo "# ${line#\# }"
	fi
}

test_end()
{
	local status=$1

	if ((status == 4)); then
		result ok "$test # SKIP"
	elif ((status == 124)); then
		result "not ok" "$test: cut at its deadline of $deadline s"
	elif ((status != 0 && bad == 0)); then
		result "not ok" "$test: exit status $status"
	elif [[ -n $plan ]] && ((plan != results)); then
		result "not ok" "$test: $results results where $plan were planned"
	elif ((results == 0)); then
		result ok "$test"
	fi
	note "$test: $results results, exit status $status, $((SECONDS - begin)) s"
}

# Not 0 if the guest ended before it was up, or was silent until the deadline.
watch_boot()
{
	local line=""

	until [[ $line == "@kv boot" ]]; do
		IFS= read -r -t "$boot_deadline" line <&"$out" || return
	done
	note "$name booted in $SECONDS s"
}

watch_tests()
{
	local line test="" plan="" results=0 bad=0 begin=0 done=0 wait=$((deadline + margin))

	echo "TAP version 13"
	while IFS= read -r -t "$wait" line <&"$out"; do
		case $line in
		"@kv begin "*)
			test=${line#@kv begin } plan="" results=0 bad=0 begin=$SECONDS
			;;
		"@kv end "*)
			test_end "${line#@kv end }"
			test=""
			;;
		"@kv done")
			done=1
			wait=$margin
			;;
		*)
			test_line "$line"
			;;
		esac
	done
	((done)) || result "not ok" "${test:-$name}: the guest ended or hung before the job was done, see $log"
}

# Output straight through; the status is the command's.
watch_stream()
{
	local line status=1 wait=$((deadline + margin))

	while IFS= read -r -t "$wait" line <&"$out"; do
		case $line in
		"@kv end "*) status=${line#@kv end } ;;
		"@kv done") wait=$margin ;;
		*) printf '%s\n' "$line" ;;
		esac
	done
	return "$status"
}

# What a kernel says when something is wrong with it.
bad_log='BUG:|WARNING:|Oops|general protection|Kernel panic|blocked for more than|refcount_t|rcu.*detected stall|KASAN|UBSAN|kobject .*:.*tried to|leaked'
# What ends a watch that would have found more.
bad_log+='|non-static key|turning off the locking correctness validator|kmemleak: .*disabled'

# It is whole, by its last words, and nothing in it is bad; a log that cannot be read is not clean.
log_is_clean()
{
	grep -qa 'reboot: Power down' "$log" || { echo "# the kernel log does not reach the end"; return 1; }
	grep -aE "$bad_log" "$log" | sed 's/^/# /'
	((PIPESTATUS[0] == 1))
}
