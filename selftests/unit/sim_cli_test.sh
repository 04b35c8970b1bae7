#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# cxl-kv sim as people call it: the ladder, three tiers by the model and by measurement, every form
# of output, the made-up load, and what it says when it cannot.
# shellcheck disable=SC2016 # $names in jq's filters are jq's
set -u
cd "$(dirname "$0")/../.." || exit 1
sim=build/bin/cxl-kv
tmp=$(mktemp -d -p build) || exit 1
trap 'rm -rf "$tmp"' EXIT
number=0 status=0
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}
# FILE FILTER: a jq condition.
holds() { jq -e "$2" "$1" >/dev/null; }
# EXIT WHAT ARGUMENT...: it ends with that status and says that.
refuses() {
	local exit=$1 what=$2 said
	shift 2
	said=$($sim sim "$@" 2>&1)
	[ $? = "$exit" ] && [[ $said == *"$what"* ]]
}

att=$tmp/small.att requests=$tmp/requests
build/bin/kv-engine attention --tokens 128 --tokens-per-block 8 "$att" >/dev/null || exit 1
for ((i = 0; i < 60; i++)); do echo "$i 1 2 $((3 + i % 9)) $((20 + i % 7))"; done >"$requests"

$sim sim -q -j --ladder -c 20 "$att" >"$tmp/ladder.json"
holds "$tmp/ladder.json" '[.policies[].policy] as $p | ["anchors", "ema", "per-head", "prefetch"]
	| all(. as $rung | $p | index("lru+" + $rung) and index("all-" + $rung))'
report $? "the ladder has each rung alone and each taken away alone"
holds "$tmp/ladder.json" '[.policies[] | {(.policy): .cells[0].hit_percent}] | add
	| .["opt+glob"] >= .lru and .["opt+head"] >= .["lru+per-head"]'
report $? "OPT stands beside them, above what it is the bound of"
holds "$tmp/ladder.json" '[.policies[] | select(.policy == "lru+per-head" or .policy == "lru")
	| .cells[0].fetched_per_head_step] | .[1] < .[0]'
report $? "heads of their own fetch less"
refuses 1 "needs .att traces" --ladder "$requests"
report $? "requests have no ladder"

$sim sim -q -j --three-tiers -c 10,50 "$requests" >"$tmp/tiers.json"
holds "$tmp/tiers.json" '[.policies[].cells[] | (.prefix_hit_percent / 100) as $h
	| .ns - ($h * 100 + 0.9 * (1 - $h) * 200 + 0.1 * (1 - $h) * 25000) | fabs] | max < 0.01'
report $? "three tiers: h 100 ns + 0.9 (1 - h) 200 ns + 0.1 (1 - h) 25 us"
holds "$tmp/tiers.json" '.latencies.source | test("model|paper|published")'
report $? "which it says is a model"

cat >"$tmp/measured" <<END
{"nodes": [{"tier": "hot", "read_ns": 90}, {"tier": "hot", "read_ns": 80}, {"tier": "warm", "read_ns": 300}],
 "cold": {"block_read_p50_ns": 50000}}
END
$sim sim -q -j --measured "$tmp/measured" -c 10 "$requests" >"$tmp/own.json"
holds "$tmp/own.json" '.latencies | .hot_ns == 80 and .warm_ns == 300 and .cold_ns == 50000 and (.source | test("measured"))'
report $? "measured latencies: the fastest node of each tier"
holds "$tmp/own.json" '[.policies[].cells[] | .ns >= 80 and .ns <= 50000] | all'
report $? "and times that lie between them"
echo '{"nodes": [{"tier": "hot", "read_ns": 90}], "cold": {"block_read_p50_ns": 50000}}' >"$tmp/less"
refuses 2 "warm was not measured" --measured "$tmp/less" "$requests"
report $? "a tier that was not measured is named"
refuses 2 "three numbers" --latencies 1,2 "$requests"
report $? "two latencies are too few"

$sim sim -q --csv -p lru,opt -c 10,20 "$requests" >"$tmp/csv"
[ "$(head -n 1 "$tmp/csv")" = "policy,capacity_percent,block_hit_percent,prefix_hit_percent,fetched_per_request" ] &&
	[ "$(wc -l <"$tmp/csv")" = 5 ]
report $? "CSV has a line for each policy and capacity"
$sim sim -q -p lru,opt -c 10,20 --svg "$tmp/plot.svg" "$requests" >/dev/null &&
	grep -q '</svg>' "$tmp/plot.svg" && grep -q '>lru<' "$tmp/plot.svg" && grep -q '>opt<' "$tmp/plot.svg"
report $? "SVG names the curves"
refuses 2 "no policy nonsense for this trace; there are" -p nonsense "$requests" &&
	refuses 2 "no policy nonsense for this trace; there are" -p nonsense "$att" &&
	refuses 2 "no policy nonsense for a synthetic load; there are" -p nonsense --synthetic 2x2048x8
report $? "an unknown policy is named, with those that there are"
refuses 1 "$tmp: Is a directory" "$tmp"
report $? "a folder is no trace, and is called one"
refuses 2 "top:K" -a sometimes "$att"
report $? "an unknown access is refused"

for form in "" --csv -j; do
	# shellcheck disable=SC2086 # a word or none
	$sim sim -q $form -p lru -c 10 "$requests" >/dev/full 2>"$tmp/full" && break
	grep -q "cannot be written: No space left" "$tmp/full" || break
done
[ "$form" = -j ]
report $? "figures that meet a full disk are a failure"
refuses 1 "one trace of requests at a time" -q --csv "$requests" "$requests"
report $? "CSV is of one trace, with two nobody could tell them apart"
$sim sim -q -p lru -c 10 "$requests" "$tmp/../${tmp##*/}/requests" >"$tmp/two" &&
	[ "$(grep -c "^# .*requests: 60 requests" "$tmp/two")" = 2 ]
report $? "a table names its trace where there are more"

load="--synthetic 2x2048x8 --steps 8 -c 50"
# shellcheck disable=SC2086 # words
$sim sim -q -j $load -p adaptive,lru >"$tmp/made.json" &&
	$sim sim -q -j $load -p lru >"$tmp/again.json" &&
	$sim sim -q -j $load --seed 2 -p lru >"$tmp/other.json"
holds "$tmp/made.json" '.trace | test("not for claims of quality")'
report $? "a made-up load is marked"
lru='[.policies[] | select(.policy == "lru").cells[0].hit_percent]'
[ "$(jq -c "$lru" "$tmp/made.json")" = "$(jq -c "$lru" "$tmp/again.json")" ] &&
	[ "$(jq -c "$lru" "$tmp/made.json")" != "$(jq -c "$lru" "$tmp/other.json")" ]
report $? "it follows from its seed"
# shellcheck disable=SC2086 # words
refuses 2 "three numbers" --synthetic 4294967298x2048x8 --steps 8
report $? "a number that is too large for it is not taken for a smaller one"
# shellcheck disable=SC2086 # words
refuses 2 "two runs" $load "$requests"
report $? "a trace and a made-up load are two runs"
echo "1..$number"
exit $status
