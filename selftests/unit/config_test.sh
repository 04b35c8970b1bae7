#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The configuration people get: the example is valid as it stands and with every line in
# force, and it and the manual page know exactly the keys that the daemon knows.
set -u
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
number=0 status=0
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}

daemon=build/bin/cxl-kvd
example=systemd/cxl-kvd.toml
"$daemon" --describe-config | sed 's/:.*//' | sort >"$tmp/known"
[ "$(wc -l <"$tmp/known")" -gt 20 ]
report $? "the daemon lists its keys"
succeeded=
for option in --version --help --describe-config --check-config; do
	"$daemon" --config "$example" "$option" >/dev/full 2>"$tmp/said" && succeeded+=" $option"
	grep -q "cannot be written: No space left" "$tmp/said" || succeeded+=" $option, silently"
done
[ -z "$succeeded" ]
report $? "what meets a full disk is a failure$succeeded"

"$daemon" --config "$example" --check-config
report $? "the example is valid"

sed -E 's/^#([a-z_A-Z]+ = )/\1/' "$example" >"$tmp/all.toml"
"$daemon" --config "$tmp/all.toml" --check-config
report $? "every default in the example is valid"

awk '/^\[/ { table = substr($1, 2, length($1) - 2) }
	/^[a-zA-Z_]+ = / { print table "." $1 }' "$tmp/all.toml" | sort >"$tmp/example"
diff "$tmp/known" "$tmp/example" | sed 's/^/# /'
report "${PIPESTATUS[0]}" "the example has every key and no other"

awk '/^\.Ss Table/ { table = $3 } /^\.It Cm/ && table { print table "." $3 }' docs/man/cxl-kvd.toml.5 |
	sort >"$tmp/page"
diff "$tmp/known" "$tmp/page" | sed 's/^/# /'
report "${PIPESTATUS[0]}" "cxl-kvd.toml(5) has every key and no other"
! "$daemon" --config "$tmp" --check-config 2>"$tmp/said" && grep -q "is a directory" "$tmp/said"
report $? "a directory is no configuration"
! "$daemon" --config /dev/zero --check-config 2>"$tmp/said" && grep -q "larger than 16 MiB" "$tmp/said"
report $? "a device without an end is no configuration"
mkfifo "$tmp/pipe"
! timeout 20 "$daemon" --config "$tmp/pipe" --check-config 2>"$tmp/said" && grep -q "is a pipe" "$tmp/said"
report $? "a pipe is no configuration, and nobody waits for a writer"

head -c 64M /dev/zero | tr '\0' '#' >"$tmp/long.toml"
(ulimit -v 50000; exec "$daemon" --config "$tmp/long.toml" --check-config) >/dev/null 2>"$tmp/said"
[ $? = 1 ] && [ "$(cat "$tmp/said")" = "cxl-kvd: out of memory" ]
report $? "a configuration that memory does not hold is a failure with a reason"

printf '[cold]\npath = "/spill\\u0000.old"\n' >"$tmp/zero.toml"
! "$daemon" --config "$tmp/zero.toml" --check-config 2>"$tmp/said" && grep -q "zero.toml:2: cold.path" "$tmp/said"
report $? "a path has no zero byte"
echo "1..$number"
exit $status
