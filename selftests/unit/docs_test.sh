#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Every topic that `cxl-kv doctor` can print has a place in docs/troubleshooting.md.
set -u
cd "$(dirname "$0")/../.." || exit 1
number=0 status=0
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}

topics=$(grep -hoE 'Finding::(Note|Warn|Bad), "[^"]+"' daemon/cli/*doctor*.cc | sed 's/.*"\(.*\)"/\1/' | sort -u)
[ "$(wc -l <<<"$topics")" -gt 10 ]
report $? "topics are found in the sources"
while read -r topic; do
	grep '^## ' docs/troubleshooting.md | tr ',' '\n' | sed 's/^## *//; s/^ *//' | grep -qxF -- "$topic"
	report $? "docs/troubleshooting.md: $topic"
done <<<"$topics"

while read -r link; do
	case $link in http*) continue ;; esac
	[ -e "$link" ] || [ -e "docs/$link" ]
	report $? "link $link leads somewhere"
done < <(grep -ohE '\]\([^)#]+\)' README.md CONTRIBUTING.md docs/*.md | sed 's/](\(.*\))/\1/')
echo "1..$number"
exit $status
