# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# TAP for the guest's shell tests: check WHAT COMMAND... for each claim, done_checking at the end.

checks=0
bad_checks=0

check()
{
	local what=$1 said; shift

	checks=$((checks + 1))
	if said=$("$@" 2>&1); then
		echo "ok $checks - $what"
	else
		bad_checks=$((bad_checks + 1))
		echo "# failed: $*"
		[[ -z $said ]] || tail -n 5 <<<"$said" | sed 's/^/# /'
		echo "not ok $checks - $what"
	fi
}

# Waits until the command succeeds; SECONDS is a limit, not a delay, and longer in a guest that is known as slow.
within()
{
	local end=$((SECONDS + $1 * ${VM_SLOW:-1})); shift

	until "$@"; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}

done_checking()
{
	echo "1..$checks"
	exit $((bad_checks > 0))
}
