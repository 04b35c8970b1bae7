# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# TAP of scripts that run suites of guests with a kernel of their own: ../check-kernel, ../check-debug-kernel.
# shellcheck disable=SC2034,SC2154 # bad is for the script; log, vm: set by it

checks=0 bad=0
taken="" # all that take_results was given, as it was

result() {
	checks=$((checks + 1))
	[[ $1 == ok ]] || bad=$((bad + 1))
	echo "$1 $checks - $2"
}

# The end of the log of what failed, as diagnostics.
give_up() {
	tail -n 20 "$log" | sed 's/^/# /'
	result "not ok" "$1"
	echo "1..$checks"
	exit 1
}

# PREFIX COMMAND...: the command's results are ours, with a prefix; there must be some, and it must not end by a signal.
take_results() {
	local prefix=$1 before=$checks line status; shift

	while IFS= read -r line; do
		taken+=$line$'\n'
		case $line in
		"ok "*) result ok "$prefix: ${line#ok * - }" ;;
		"not ok "*) result "not ok" "$prefix: ${line#not ok * - }" ;;
		"#"*) echo "$line" ;;
		esac
	done < <("$@" 2>/dev/null)
	wait $!
	status=$?
	((status <= 1)) || result "not ok" "$prefix: ${1##*/} ended with status $status"
	((checks > before)) || result "not ok" "$prefix: ${1##*/} ran"
}
