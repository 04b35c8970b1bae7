#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# cxl_kv(4) against the module's source: every parameter, ioctl, errno, file of sysfs and tracepoint
# is in the page, and the page names none that is not there. Each parameter has a description.
set -u
shopt -s lastpipe # what a pipe ends in counts in this shell
cd "$(dirname "$0")/../.." || exit 1
page=docs/man/cxl_kv.4
uapi=include/uapi/linux/cxl_kv.h
number=0 status=0
report() {
	number=$((number + 1))
	if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; status=1; fi
}

words() { grep -oE '[A-Za-z_0-9:]+' "$1" | sort -u; }
# WHAT: of the names on stdin, each must be a word of the page, and there must be some.
all_in_page() {
	local names missing
	names=$(sort -u)
	missing=$(comm -23 <(echo "$names") <(words $page))
	[ -z "$missing" ] || echo "# not in $page: ${missing//$'\n'/ }"
	[ -n "$names" ] && [ -z "$missing" ]
	report $? "$1: all $(wc -w <<<"$names") are in the page"
}
# WHAT NAMES: what the page says (stdin) is there.
none_invented() {
	local invented
	invented=$(comm -23 <(sort -u) <(sort -u <<<"$2"))
	[ -z "$invented" ] || echo "# not in the source: ${invented//$'\n'/ }"
	[ -z "$invented" ]
	report $? "$1: the page invents none"
}

parameters=$(sed -nE 's/^module_param(_array)?\(([a-z_]+),.*/\2/p' kmod/*.c)
ioctls=$(sed -nE 's/^#define (CXL_KV_IOC_[A-Z_]+) _IO\(.*/\1/p' $uapi)
# ERESTART* never leaves the kernel: the call begins again.
errnos=$(grep -ohE -e '-E[A-Z0-9]+\b' kmod/*.c | tr -d - | grep -v ^ERESTART | sort -u)
files=$({
	sed -nE 's/.*(DEVICE|CLASS)_ATTR_(RO|WO|RW)\(([A-Za-z_]+)\).*/\3/p' kmod/*.c
	sed -nE 's/^(ARENA|PERF|BLOCK|CXL_KV)_SHOW\(([A-Za-z_]+),.*/\2/p' kmod/*.c
	sed -nE 's/^ENTRY_SHOW\((head|slot), ([a-z_]+),.*/\2/p' kmod/*.c
} | grep -v '^_' | sort -u)
tracepoints=$(sed -nE 's/^TRACE_EVENT\(([a-z_]+),.*/cxl_kv:\1/p' kmod/trace.h)

all_in_page parameters <<<"$parameters"
all_in_page ioctls <<<"$ioctls"
all_in_page errnos <<<"$errnos"
all_in_page "files of sysfs" <<<"$files"
all_in_page tracepoints <<<"$tracepoints"
sed -nE 's/^\.(It|Op) Cm ([a-z_]+) Ns = .*/\2/p' $page | none_invented parameters "$parameters"
grep -oE 'CXL_KV_IOC_[A-Z_]+' $page | none_invented ioctls "$ioctls"
grep -oE 'cxl_kv:[a-z_]+' $page | none_invented tracepoints "$tracepoints"

# Each ioctl is in the command table, and in the test of what holds for all.
for ioctl in $ioctls; do
	grep -q "CXL_KV_OP($ioctl," kmod/main.c && grep -q "$ioctl, Who::" selftests/vm/kmod/abi_test.cc
	report $? "$ioctl is in the command table and in the ABI test"
done
undescribed=$(comm -23 <(sort <<<"$parameters") <(sed -nE 's/^MODULE_PARM_DESC\(([a-z_]+),.*/\1/p' kmod/*.c | sort))
[ -z "$undescribed" ]
report $? "every parameter has a description $undescribed"
echo "1..$number"
exit $status
