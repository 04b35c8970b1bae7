#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# A running daemon's metrics, read by another program's parser: what is documented is there and nothing else,
# by the rules of names and types; the dashboard asks for nothing that is not there.
# shellcheck disable=SC2154 # $disk, $client: daemon.sh
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=../lib/daemon.sh
. selftests/lib/daemon.sh
own_daemon_test
if ! /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null; then
	echo "1..0 # SKIP no python3-prometheus-client here"
	exit 4
fi

start_daemon HOT__LIMIT=600KiB COLD__SIZE=64MiB || exit 1
build/bin/kv-engine run --conversations 4 --rounds 4 --context 256 --reply 8 --memory arena \
	--output "$disk/out" >"$disk/engine.log" 2>&1 &
client=$!
# The last ones with an arena, whenever the engine ends.
while kill -0 "$client" 2>/dev/null; do
	build/bin/cxl-kv metrics >"$disk/now" && grep -q '^cxl_kv_arena_bytes{' "$disk/now" && mv "$disk/now" "$disk/metrics"
	sleep 0.05
done
wait "$client"
report $? "an engine runs"
sed 's/^/# /' "$disk/engine.log" | tail -n 3
client=
grep -q '^cxl_kv_up 1$' "$disk/metrics"
report $? "metrics while it does"

# NAME TYPE of each family as the parser sees them; what breaks a rule goes to stderr.
/usr/bin/python3 - "$disk/metrics" >"$disk/families" 2>"$disk/wrong" <<'END'
import math, sys
from prometheus_client.parser import text_string_to_metric_families

seen = set()
for family in text_string_to_metric_families(open(sys.argv[1]).read()):
    name = family.name + ("_total" if family.type == "counter" else "")
    print(name, family.type)
    wrong = lambda why: print(name, why, file=sys.stderr)
    if not family.documentation.endswith("."):
        wrong("has no help")
    if family.type not in ("counter", "gauge", "histogram"):
        wrong("is of no known type: " + family.type)
    if any(unit in name for unit in ("_ns", "_ms", "_MB", "_MiB", "_percent")):
        wrong("is not in base units")
    # Tenants and formats that nobody uses have none.
    optional = ("cxl_kv_tenant_quota_bytes", "cxl_kv_format_nmse")
    if not family.samples and name not in optional:
        wrong("has no sample")
    buckets = {}
    for sample in family.samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        if key in seen:
            wrong("has a sample twice")
        seen.add(key)
        if not math.isfinite(sample.value) or sample.value < 0:
            wrong("is not finite and positive")
        if sample.name.endswith("_bucket"):
            buckets[float(sample.labels["le"])] = sample.value
        if sample.name.endswith("_count") and family.type == "histogram":
            if buckets.get(math.inf) != sample.value:
                wrong("has a count that is not its last bucket")
    values = [buckets[edge] for edge in sorted(buckets)]
    if values != sorted(values) or (family.type == "histogram" and len(values) < 5):
        wrong("has buckets that do not add up")
END
report $? "another parser reads them"
sed 's/^/# /' "$disk/wrong"
[ ! -s "$disk/wrong" ]
report $? "they keep the rules of names, types, help and histograms"

# shellcheck disable=SC2016 # the file's own quotes
sed -nE 's/^\| `([a-z_]+)` \| ([a-z]+) \|.*/\1 \2/p' docs/metrics.md | sort >"$disk/documented"
sort "$disk/families" | diff "$disk/documented" - | sed 's/^/# /'
report "${PIPESTATUS[1]}" "docs/metrics.md lists exactly these"
build/bin/cxl-kv metrics >"$disk/after"
for what in spill_duration restore_duration reuse_gap; do
	grep -q "^cxl_kv_${what}_seconds_count [1-9]" "$disk/after"
	report $? "cxl_kv_${what}_seconds counted what took time"
done

jq -r '.panels[].targets[].expr' docs/grafana/cxl-kv.json | grep -oE 'cxl_kv_[a-z_]+' |
	sed -E 's/_(bucket|sum|count)$//' | sort -u >"$disk/asked"
[ "$(wc -l <"$disk/asked")" -gt 15 ] && ! cut -d' ' -f1 "$disk/documented" | grep -vxFf - "$disk/asked" | sed 's/^/# /' | grep .
report $? "the dashboard asks for metrics that there are"
# Over HTTP, beside one that never ends its request.
build/bin/cxl-kv metrics --port 0 >"$disk/url" &
client=$!
for _ in {1..100}; do
	[ -s "$disk/url" ] && break
	sleep 0.1
done
port=$(grep -oE '[0-9]+/metrics' "$disk/url" | cut -d/ -f1)
http() { # REQUEST-LINE...
	exec 4<>"/dev/tcp/127.0.0.1/$port"
	printf '%s\r\n' "$@" "" >&4
	timeout 30 cat <&4
	exec 4>&-
}
http "GET /metrics HTTP/1.1" "Host: x" >"$disk/http" && grep -q '^cxl_kv_up 1$' "$disk/http" &&
	grep -q '^HTTP/1.1 200 OK' "$disk/http" && http "GET / HTTP/1.1" | grep -q '^HTTP/1.1 404' && http "nonsense" | grep -q '^HTTP/1.1 400'
report $? "HTTP serves GET /metrics and nothing else"
exec 3<>"/dev/tcp/127.0.0.1/$port"
while printf x >&3; do sleep 0.2; done 2>/dev/null &
http "GET /metrics HTTP/1.1" | grep -q '^cxl_kv_up 1$'
report $? "one that sends its request byte by byte does not keep others waiting"
exec 3>&-
# Else the socket is descriptor 1, and the daemon hangs up on the table that it gets.
build/bin/cxl-kv top -n 2 2>"$disk/closed" >&-
[ "$?" = 1 ] && grep -q 'the output cannot be written' "$disk/closed"
report $? "where the output is closed, nothing of it goes to the daemon"
# Nor does the daemon's log into what the daemon opens.
end "$daemon"
CXL_KV_DAEMON__SOCKET=$CXL_KV_SOCKET CXL_KV_COLD__PATH=$PWD/$disk/spill CXL_KV_COLD__SIZE=64MiB \
	build/bin/cxl-kvd --config "$config" <&- >&- 2>&- &
daemon=$!
for _ in {1..100}; do
	status >/dev/null && break
	sleep 0.1
done
[ "$(readlink "/proc/$daemon"/fd/{0,1,2} | sort -u)" = /dev/null ]
report $? "started without standard files, the daemon has none"

echo "1..$number"
exit $bad
