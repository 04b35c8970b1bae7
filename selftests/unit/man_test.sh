#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Manual pages: clean for mandoc, and cxl-kv(1) knows every command and option of the program.
set -u
cd "$(dirname "$0")/../.." || exit 1
number=0 status=0
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}

for page in docs/man/*; do
	if ! command -v mandoc >/dev/null; then
		number=$((number + 1))
		echo "ok $number - $page # SKIP no mandoc here"
		continue
	fi
	# Our pages refer to each other before any of them is installed.
	said=$(mandoc -Tlint "$page" 2>&1 | grep -vE 'referenced manual not found|mandoc.db lacks')
	[ -z "$said" ] || awk '{ print "# " $0 }' <<<"$said"
	[ -z "$said" ]
	report $? "$page is clean"
done

for command in $(build/bin/cxl-kv --help | awk '/^  [a-z]/ { print $1 }'); do
	section=$(awk -v command="$command" '/^\.Ss/ { inside = $2 == command } inside' docs/man/cxl-kv.1)
	[ -n "$section" ]
	report $? "cxl-kv(1) has $command"
	! build/bin/cxl-kv "$command" --help | LC_ALL=C.UTF-8 awk 'length > 80 { print "# " $0; wide = 1 } END { exit !wide }'
	report $? "the help of cxl-kv $command fits 80 columns"
	for letter in $(build/bin/cxl-kv "$command" --help | sed -n 's/^  -\(.\),.*/\1/p'); do
		[ "$letter" = h ] && continue
		grep -qE "Fl $letter( |$|,)" <<<"$section"
		report $? "cxl-kv(1) has $command -$letter"
	done
done
echo "1..$number"
exit $status
