#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The module finds committed regions that no driver holds, one of them interleaved over two devices:
# a node for each, which cannot be taken apart while its memory is online.
# shellcheck disable=SC2317 # functions are called by check
. "$(dirname "$0")/../lib/check.sh"

module=build/kmod/$(uname -r)/cxl_kv.ko
class=/sys/class/cxl_kv
bus=/sys/bus/cxl/devices
tiers=/sys/devices/virtual/memory_tiering

is() { [[ $(cat "$1") == "$2" ]] || { echo "$1 has $(cat "$1")"; return 1; }; }
nodes() { (cd $class && echo node*); }
refused() { ! echo "$1" >"$2"; }

# The pages of a node hold what was written, also after they had to leave it.
live_pages()
{
	local sum

	numactl -m "$1" head -c 4M /dev/urandom >"/dev/shm/live$1" || return
	sum=$(md5sum <"/dev/shm/live$1")
	echo 1 >"$class/node$1/remove" || return
	[[ $(md5sum <"/dev/shm/live$1") == "$sum" ]]
}

# What the module says of a node is what the kernel says of its region, which it has from CDAT, too.
# (Newer kernels than 6.12 do not say it of the node.)
says_what_the_kernel_says()
{
	local kernel=$bus/region$(($1 - 2))/access1 ours=$class/node$1 name

	for name in read_latency:_ns write_latency:_ns read_bandwidth:_MBps write_bandwidth:_MBps; do
		is "$ours/${name/:/}" "$(cat "$kernel/${name%:*}")" || return
	done
}

echo online_movable >/sys/devices/system/memory/auto_online_blocks
check "two regions are committed" sh -c "cat $bus/region0/commit $bus/region1/commit | grep -c 1 | grep -qx 2"
check "one is interleaved over two devices" is $bus/region0/interleave_ways 2

check "regions=0 leaves them alone" insmod "$module" regions=0
check "there is no node then" test ! -e $class/node1
check "rmmod" rmmod cxl_kv

check "insmod without parameters" insmod "$module"
check "each region is a node" test "$(nodes)" = "node2 node3"
for n in 2 3; do
	region=region$((n - 2))
	check "node $n is $region" is $class/node$n/region $region
	check "node $n: its range" is $class/node$n/base "$(cat $bus/$region/resource)"
	check "node $n: its size" is $class/node$n/size_bytes $(($(cat $bus/$region/size)))
	check "node $n is online" is $class/node$n/state online
	check "node $n is in a tier of its own" is "$tiers/memory_tier$(cat $class/node$n/tier)/nodelist" $n
	check "node $n: its performance is that of CDAT" is $class/node$n/performance_source cdat
	check "node $n: the kernel has the same" says_what_the_kernel_says $n
	for file in commit size target0 interleave_ways; do
		check "$region/$file cannot be changed while its memory is online" refused 0 $bus/$region/$file
	done
	check "$region cannot be deleted while its memory is online" refused $region "$bus/decoder0.$((n - 2))/delete_region"
	check "$region is still committed" is $bus/$region/commit 1
done
check "rmmod is refused" sh -c '! rmmod cxl_kv'
check "live pages of the interleaved node survive its removal" live_pages 2
check "node 2 is gone" test ! -e /sys/devices/system/node/node2
check "region0 is as it was" is $bus/region0/commit 1
check "and can be changed again" sh -c "echo 0 >$bus/region0/commit"
check "region1 still cannot" refused 0 $bus/region1/commit
check "rmmod is still refused" sh -c '! rmmod cxl_kv'
check "live pages of the other node survive its removal" live_pages 3
check "rmmod" rmmod cxl_kv

dmesg -C
check "a range in a region that is not committed is refused" \
	sh -c "! insmod $module base=$(cat $bus/region0/resource) size=256M node=2"
check "and named" sh -c 'dmesg | grep "cxl_kv: .*region0 is not RAM, not committed"'
check "only the committed region is taken" insmod "$module"
check "it is region1" test "$(nodes)" = node3
check "removal" sh -c "echo 1 >$class/node3/remove"
check "rmmod once more" rmmod cxl_kv

check "performance can be given" insmod "$module" base="$(cat $bus/region1/resource)" size="$(cat $bus/region1/size)" \
	read_latency=250 write_latency=300 read_bandwidth=30000 write_bandwidth=20000
check "its source says so" is $class/node3/performance_source given
check "read latency is the one given" is $class/node3/read_latency_ns 250
check "write bandwidth is the one given" is $class/node3/write_bandwidth_MBps 20000
check "a given range that is a region is known as one" is $class/node3/region region1
check "removal again" sh -c "echo 1 >$class/node3/remove"
check "rmmod again" rmmod cxl_kv

echo offline >/sys/devices/system/memory/auto_online_blocks
check "kmem takes the other one" modprobe -a kmem dax_cxl
check "it has" within 20 grep -q 'System RAM (kmem)' /proc/iomem
dmesg -C
check "insmod beside it" insmod "$module"
check "no region is taken from it" test ! -e $class/node3/region
check "its holder is named" sh -c 'dmesg | grep -E "cxl_kv: region1 is held: by dax.* \(driver kmem\)"'
check "rmmod at last" rmmod cxl_kv
dmesg -C
check "a given range that kmem holds is refused" \
	sh -c "! insmod $module base=$(cat $bus/region1/resource) size=$(cat $bus/region1/size)"
check "and its holder named" sh -c 'dmesg | grep -E "cxl_kv: .* is held: by dax.* \(driver kmem\)"'
rm -f /dev/shm/live*
done_checking
