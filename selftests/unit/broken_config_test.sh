#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Configurations that are wrong: for each, --check-config names file and line, the key, and why.
set -u
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
number=0 status=0
daemon=$PWD/build/bin/cxl-kvd
file=$tmp/x.toml
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}
# WHERE KEY REASON: what was said begins with where, then has the key, then the reason, on one line.
said_so() {
	local line
	line=$(head -n 1 "$tmp/said")
	line=${line#cxl-kvd: }
	[[ $line == "$1: "*"$2"*"$3"* && $(wc -l <"$tmp/said") = 1 ]] || { echo "# $line"; return 1; }
}
# LINE KEY REASON, and the configuration on stdin.
broken() {
	cat >"$file"
	"$daemon" --config "$file" --check-config >"$tmp/out" 2>"$tmp/said"
	[ $? = 2 ] && said_so "$file:$1" "$2" "$3" && [ ! -s "$tmp/out" ]
	report $? "$2: $3"
}

# Values that a key does not take: KEY|VALUE|WHAT-IT-TAKES.
while IFS='|' read -r key value takes; do
	broken 4 "$key = " "it takes $takes" \
		< <(printf '# a comment\n[%s]\n\n%s = %s\n' "${key%%.*}" "${key#*.}" "$value")
done <<'END'
daemon.socket|""|a path
daemon.socket|7|a path
daemon.log_level|"loud"|one of error
daemon.interval_ms|0|a whole number from 1 to 10000
daemon.interval_ms|2.5|a whole number
hot.limit|"lots"|bytes such as
hot.limit|"101%"|bytes such as
hot.limit|-1|bytes such as
hot.nodes|"0,,1"|"auto", or different
hot.nodes|[0, 0]|"auto", or different
hot.nodes|[]|"auto", or different
hot.nodes|"-1"|"auto", or different
hot.high_permil|1001|a whole number from 1 to 1000
warm.limit|"0.01%"|bytes such as
warm.nodes|["0"]|"auto", or different
warm.nodes|4096|"auto", or different
cold.path|"/"|a path of a file
cold.path|"/spill\u0000.old"|a path
cold.path|"/var/lib/"|a path of a file
cold.more_paths|"/one"|a list of paths
cold.more_paths|["/one", 2]|a list of paths
cold.size|0|bytes such as "64GiB", at least
cold.size|"16 furlongs"|bytes such as
cold.queue_depth|"32"|a whole number
cold.wipe|true|one of none
mover.max_MBps|1e30|a whole number
sampling.flush_tlb|"yes"|true or false
sampling.interval_ms|1|a whole number from 10
policy.alpha|nan|a number from 0.0001 to 1
policy.alpha|inf|a number
policy.preset|"papers"|one of adaptive
policy.promote_score|{ at = 1 }|a number from 0 to 1
policy.max_extent_bytes|2097153|a whole number from 4096
tenant.x.hot|"nope"|bytes such as "64GiB", or "none"
END


# As long as the kernel takes, and a byte more.
long=/tmp/$(printf %0102d 0)
broken 2 "daemon.socket = " "it takes a path of a socket, up to 107 bytes" \
	< <(printf '[daemon]\nsocket = "%s1"\n' "$long")
printf '[daemon]\nsocket = "%s"\n' "$long" >"$file"
"$daemon" --config "$file" --check-config >/dev/null
report $? "daemon.socket: 107 bytes"

broken 2 hot.limt "[hot] has: limit, nodes" <<<'[hot]
limt = "1GiB"'
broken 1 "[hto]" "there are: daemon, hot" <<<'[hto]'
broken 1 size "stands outside a table" <<<'size = 3'
broken 2 hot "[hot], and its keys on the lines below" <<<'
hot = "1GiB"'
broken 3 "[[hot]]" "makes a list of tables" <<<'

[[hot]]'
broken 3 "hot.limit" "is not allowed; it takes bytes" <<<'[hot]
nodes = [0]
[hot.limit]'

# No TOML.
broken 2 hot.limit "" <<<'[hot]
limit 1GiB'
broken 2 hot.limit "" <<<'[hot]
limit = 1GiB'
broken 2 cold.path "" <<<'[cold]
path = "/var/lib'
broken 3 warm.limit "" <<<'[warm]
limit = 5
limit = 6'
broken 3 hot "" <<<'[hot]
[cold]
[hot]'
broken 1 hot "" <<<'[hot'
broken 1 "" "" <<<'[='
broken 2 cold.path "" < <(printf '[cold]\npath = "/\377"\n')

# Nothing of it is for a terminal, or the journal, to act on.
broken 1 '\xff\x1b[31ml'$'\303\244'ngd "utf-8" < <(printf '\377\033[31ml\303\244ngd = 1\n')
broken 2 'unknown key hot.a\x0ab\x1b\x7f' "" <<<'[hot]
"a\nb\u001b\u007f" = 1'
head -c 100000 /dev/zero | tr '\0' '\1' >"$file"
"$daemon" --config "$file" --check-config >/dev/null 2>"$tmp/said"
[ "$(wc -c <"$tmp/said")" -lt 1000 ] && said_so "$file:1" '\x01\x01' ""
report $? "a line without end is not shown whole"

# Keys that do not go together: the later one is where to look.
broken 3 hot.low_permil "must be below hot.high_permil = 500" <<<'[hot]
low_permil = 600
high_permil = 500'
broken 2 hot.low_permil "must be below hot.high_permil = 950" <<<'[hot]
low_permil = 950'
broken 2 sampling.min_interval_ms "must be 0, or from 10 to sampling.interval_ms = 1000" <<<'[sampling]
min_interval_ms = 9'
broken 3 sampling.min_interval_ms "must be 0, or from 10 to sampling.interval_ms = 100" <<<'[sampling]
min_interval_ms = 101
interval_ms = 100'
broken 4 hot.nodes "a node is in one tier" <<<'[hot]
nodes = [0, 1]
[warm]
nodes = "1,2"'
broken 3 policy.demote_score "is above promote_score" <<<'[policy]
promote_score = 0.1
demote_score = 0.3'

# Drop-ins, and what is no file.
echo '[hot]' >"$file"
mkdir "$file.d"
echo 'limit = 5' >"$file.d/10-mine.toml"
"$daemon" --config "$file" --check-config >/dev/null 2>"$tmp/said"
said_so "$file.d/10-mine.toml:1" limit "stands outside a table"
report $? "a drop-in is named with its own lines"
echo 'limit = 5' >"$file.d/20-mine.conf"
printf '[hot]\nlimit = 5\n' >"$file.d/10-mine.toml"
[ "$("$daemon" --config "$file" --check-config)" = "$file, $file.d/10-mine.toml: ok" ]
report $? "what was read is named, and files that are no *.toml are not read"
rm "$file.d"/*
mkdir "$file.d/20.toml"
"$daemon" --config "$file" --check-config >/dev/null 2>"$tmp/said"
said_so "$file.d/20.toml" "" "is a directory"
report $? "a folder is no drop-in"
rm -r "$file.d"
"$daemon" --config "$tmp/none.toml" --check-config >/dev/null 2>"$tmp/said"
said_so "$tmp/none.toml" "" "no such file"
report $? "a file that is named has to exist"

# The environment has no lines: the variable is the place.
CXL_KV_HOT__LIMIT=lots "$daemon" --config "$file" --check-config >/dev/null 2>"$tmp/said"
said_so "environment CXL_KV_HOT__LIMIT" hot.limit "it takes bytes"
report $? "environment: a wrong value"
CXL_KV_MOVER__MAX_MBPS=0 "$daemon" --config "$file" --check-config >/dev/null 2>"$tmp/said"
said_so "environment CXL_KV_MOVER__MAX_MBPS" mover.max_MBps "it takes a whole number"
report $? "environment: the case of units does not matter"
CXL_KV_HOT__SIZE=1 "$daemon" --config "$file" --check-config >/dev/null 2>"$tmp/said"
said_so "environment CXL_KV_HOT__SIZE" "" "[hot] has: limit"
report $? "environment: an unknown key"
CXL_KV_COLD_WRITE_MBPS=1 "$daemon" --config "$file" --check-config >/dev/null 2>"$tmp/said"
said_so "environment CXL_KV_COLD_WRITE_MBPS" cold.write_MBps "CXL_KV_COLD__WRITE_MBPS"
report $? "environment: one underscore instead of two"
CXL_KV_SOCKET=/x CXL_KV_COLD_BREW=1 "$daemon" --config "$file" --check-config >/dev/null
report $? "environment: variables of others"
CXL_KV_HOT__LOW_PERMIL=990 "$daemon" --config "$file" --check-config >/dev/null 2>"$tmp/said"
said_so "environment CXL_KV_HOT__LOW_PERMIL" hot.low_permil "must be below"
report $? "environment: keys that do not go together"
echo "1..$number"
exit $status
