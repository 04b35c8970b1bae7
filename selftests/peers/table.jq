# SPDX-License-Identifier: LGPL-2.1-or-later
# What bench-peers measured, as a table and as TAP. Input: an array of the workload's results, each with
# its contender. Arguments: $order, the contenders.

def pad($n): tostring | if length < $n then (" " * ($n - length)) + . else . end;
def left($n): tostring | if length < $n then . + (" " * ($n - length)) else . end;
def fixed($digits): if . == null then "-" else
	(. * pow(10; $digits) | round) as $n | (if $n < 0 then "-" else "" end) as $sign | ($n | fabs | tostring) as $s |
	if $digits == 0 then $sign + $s else ("0" * ([$digits + 1 - ($s | length), 0] | max)) + $s |
		$sign + .[:length - $digits] + "." + .[length - $digits:] end end;
def percent: if . == null then "-" else . * 100 | fixed(1) end;
def mean: map(select(. != null)) | if length == 0 then null else add / length end;

($order | split(" ")) as $names |
. as $all |
(reduce $all[] as $r ([]; if index([$r.pattern]) then . else . + [$r.pattern] end)) as $patterns |
def of($name; $pattern): first($all[] | select(.contender == $name and .pattern == $pattern)) // null;
def share($name; $pattern): of($name; $pattern).hot_share;
def table($title; value):
	"", $title, ("" | left(10)) + ([$names[] | pad(10)] | join("")),
	($patterns[] as $p | ($p | left(10)) + ([$names[] as $n | of($n; $p) | if . == null then "-" else value end | pad(10)] | join("")));
def ours: $all[] | select(.contender == "ours");
def claim($what; $ok): [$ok, $what];

def claims:
	($patterns | map(select(. != "idle"))) as $read |
	($names | map(select(. != "ours" and . != "hints"))) as $rivals |
	(if all($rivals[]; . as $n | all($read[]; share($n; .) != null)) then
		($read[] as $p | ($rivals | map({name: ., share: share(.; $p)}) | max_by(.share)) as $best |
			claim("\($p): ours has the highest share of hot reads or is within a point of it: \(share("ours"; $p) | percent) %, \($best.name) \($best.share | percent) %";
				share("ours"; $p) >= $best.share - 0.01)),
		claim("ours has the highest share on average";
			([$read[] | share("ours"; .)] | mean) >= ([$rivals[] as $n | [$read[] | share($n; .)] | mean] | max)) else empty end),
	claim("hints are better still, on average"; ([$read[] | share("hints"; .)] | mean) > ([$read[] | share("ours"; .)] | mean)),
	(ours | select(.steady and .moved_per_useful != null) |
		claim("\(.pattern): ours moves at most 1.2 bytes for each useful one: \(.moved_per_useful | fixed(2))"; .moved_per_useful <= 1.2)),
	(ours | select(.ping_pong_share != null) |
		claim("\(.pattern): less than 1 % of what ours moves moves back soon: \(.ping_pong_share | percent) %"; .ping_pong_share < 0.01)),
	(ours | select(.pattern == "hot-64K") | .converged_intervals[0] as $found |
		claim("ours finds 64 KiB within 3 intervals: \($found)"; $found != null and $found <= 3)),
	([$all[] | .identities // empty] |
		claim("attempted = moved + failed + skipped, in both directions, at each of \(map(.samples) | add // 0) samples";
			length > 0 and all(.[]; .samples > 0 and .broken == 0))),
	([$all[] | select(.status != null) | . as $r | ["hot", "0"], ["warm", "1"] |
			{$r, tier: .[0], says: $r.status.tiers[.[0]].bytes, is: ($r.numa_maps_bytes[.[1]] // 0)}] |
		map(select((.says - .is | fabs) > ([.is / 100, 65536] | max))) as $wrong |
		claim("cxl-kvd's bytes by tier and numa_maps agree within 1 % at the end of each pattern" +
			($wrong | map("; \(.r.contender) \(.r.pattern) \(.tier) \(.says), is \(.is)") | join("")); length > 0 and ($wrong | length) == 0));

table("Reads served from the hot node, %"; .hot_share | percent),
("mean" | left(10)) + ([$names[] as $n | [$patterns[] | share($n; .)] | mean | percent | pad(10)] | join("")),
table("The same, second half of each pattern, %"; .late_hot_share | percent),
table("Hot set in the hot node, second half, %"; .recall | percent),
table("Promoted pages that were of the hot set, %"; .precision | percent),
table("Intervals until 90 % of a new hot set were hot"; .converged_intervals | map(if . == null then "never" else tostring end) | if length == 0 then "-" else join(",") end),
table("Bytes moved, MiB"; (.promoted_bytes + .demoted_bytes) / 1048576 | fixed(1)),
table("Bytes moved for each useful one"; .moved_per_useful | fixed(2)),
table("Moved back within 4 intervals, %"; .ping_pong_share | percent),
table("Latency of a read by the model (hot 100 ns, warm 200 ns), not measured, ns"; .model_ns | fixed(0)),
table("Processor time of all but the reader, ms for each GiB and interval"; .cpu_s * 1000 / (.arena_bytes / 1073741824) / .intervals | fixed(0)),
table("System calls of others for each GiB and interval"; if .syscalls == null then null else .syscalls / (.arena_bytes / 1073741824) / .intervals end | fixed(0)),
table("Length of an interval, ms"; .interval_ms | fixed(0)),
"",
([claims] | to_entries[] | (if .value[0] then "ok" else "not ok" end) + " \(.key + 1) - " + .value[1]),
"1..\([claims] | length)"
