# shellcheck shell=bash disable=SC2154,SC2034
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# What the demos share; sourced after daemon.sh, from the top of the repository.
# The engine serves conversations in plain memory, then on tiers that cxl-kvd
# manages, with a line a second about them; tokens and KV bytes are compared.
#
#   reference_run ENGINE-OPTION...   the run in plain memory; $kv_bytes afterwards
#   tiered_run KEY=VALUE...          the same on an arena, the daemon with these keys,
#                                    the engine also with $tiered_options
#   show_summary, verdict            what happened, and whether it may have

die() {
	echo "demo: $*" >&2
	exit 1
}

engine() {
	build/bin/kv-engine run --json "${engine_options[@]}" "$@"
}

columns='%7s %5s %7s %5s %7s %5s %9s %9s %9s %9s %8s %10s\n'

show_head() {
	# shellcheck disable=SC2059 # the format is the table
	printf "$columns" hot MB warm MB cold MB demoted promoted spilled restored 'wake p50' 'hit share'
	# shellcheck disable=SC2059
	printf "$columns" blocks '' blocks '' blocks '' pages pages blocks blocks ms ''
}

# The hit share is the engine's: a lease on a resident block is no message to the daemon.
show_line() {
	local share values i
	share=$(grep -o 'hit share [0-9.]*' "$disk/engine.log" | tail -n 1)
	values=$(status | jq -r '
		def mb: . / 1e5 | round / 10;
		def ms: . / 1e6 * 100 | round / 100;
		[.tiers.hot.blocks, (.tiers.hot.bytes | mb), .tiers.warm.blocks, (.tiers.warm.bytes | mb),
		 .tiers.cold.blocks, (.tiers.cold.bytes | mb), .mover.demote.moved, .mover.promote.moved,
		 .spill.spilled, .restore.restored, (.wake.p50_ns | ms)] | join(" ")') || return
	# shellcheck disable=SC2059,SC2086 # values are words
	printf "$columns" $values "${share##* }"
	# shellcheck disable=SC2206
	values=($values)
	for i in 0 2 4; do
		((values[i] == 0)) || seen[i]=1
	done
}
seen=() # of hot, warm, cold at 0, 2, 4: the tier held blocks at some moment

reference_run() {
	engine_options=("$@")
	engine --memory plain --output "$disk/plain" >"$disk/plain.json" || die "the reference run failed"
	jq -r '"\(.tokens_prefilled) tokens prefilled, \(.tokens_decoded) decoded in \(.seconds | floor) s; " +
		"KV cache \(.kv_bytes / 1e6 | floor) MB"' "$disk/plain.json"
	kv_bytes=$(jq .kv_bytes "$disk/plain.json")
}

tiered_options=()
tiered_run() {
	start_daemon "$@" || exit 1
	engine --memory arena "${tiered_options[@]}" --output "$disk/tiered" >"$disk/tiered.json" 2>"$disk/engine.log" &
	client=$!
	show_head
	while sleep 1 && kill -0 "$client" 2>/dev/null && kill -0 "$daemon" 2>/dev/null; do
		show_line
	done
	if ! kill -0 "$daemon" 2>/dev/null; then
		cat "$disk/daemon.log" >&2
		die "cxl-kvd ended, its log is above"
	fi
	if ! wait "$client"; then
		client=
		cat "$disk/engine.log" "$disk/daemon.log" >&2
		die "the tiered run failed, the logs of engine and daemon are above"
	fi
	client=
	status >"$disk/status.json" || die "cxl-kvd does not answer any more"
}

show_summary() {
	local emulated=
	! grep -q 'QEMU TCG' /proc/cpuinfo || emulated="; emulated, so no measure of a real machine"
	jq -r --arg emulated "$emulated" --slurpfile plain "$disk/plain.json" --slurpfile tiered "$disk/tiered.json" '
	def mb: . / 1e5 | round / 10;
	def ms: . / 1e6 * 100 | round / 100;
	"KV cache \($tiered[0].kv_bytes | mb) MB; hot at most \(.tiers.hot.limit_bytes | mb) MB, " +
	"warm \(.tiers.warm.limit_bytes | mb) MB",
	"moved \(.mover.demote.bytes | mb) MB hot to warm, \(.mover.promote.bytes | mb) MB back",
	"spilled \(.spill.spilled) blocks (\(.spill.spilled_bytes | mb) MB), \(.spill.clean) of them without a write;" +
	" restored \(.restore.restored) (\(.restore.restored_bytes | mb) MB), \(.restore.demand) by a fault",
	"restore of a block p50 \(.restore.p50_ns | ms) ms, p99 \(.restore.p99_ns | ms) ms" +
	" (\(.times.restore.count) blocks)\($emulated)",
	"wake of a conversation p50 \(.wake.p50_ns | ms) ms, p99 \(.wake.p99_ns | ms) ms" +
	" (\(.wake.count) wakes)\($emulated)",
	"hit share \($tiered[0].hit_share * 10000 | round / 10000): leased blocks that were already resident;" +
	" lost blocks \(.restore.lost), conversations recomputed \($tiered[0].recomputed)",
	"tokens/s \($plain[0].tokens_per_s | round) in plain memory, \($tiered[0].tokens_per_s | round) tiered\($emulated)",
	"checksum failures \(.store.checksum_failures)"' "$disk/status.json"
}

verdict() {
	build/bin/kv-engine compare "$disk/plain" "$disk/tiered" ||
		die "tokens or KV bytes differ from the run in plain memory"
	jq -e '.store.checksum_failures == 0' "$disk/status.json" >/dev/null || die "a checksum failed"
	jq -e '.restore.restored > 0' "$disk/status.json" >/dev/null ||
		die "nothing was restored: this showed nothing"
}
