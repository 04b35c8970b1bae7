# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# QEMU's arguments for the guests. Sourced by ../run; each function adds to the array qemu_args.
# shellcheck disable=SC2154 # guest_dir, here, top: set by ../run

# kvm where a trial boot with it succeeds, else tcg. The device node may exist and a boot abort all
# the same, so the outcome of one trial is kept in build/guest/accel.
choose_accel()
{
	local accel=tcg

	if [[ -n ${VM_ACCEL:-} ]]; then
		echo "$VM_ACCEL"
		return
	fi
	if [[ ! -e $guest_dir/accel ]]; then
		if [[ -w /dev/kvm ]] && VM_ACCEL=kvm timeout -k 5 60 "$here/run" --name kvm-trial --deadline 10 \
			--stream true >"$top/build/vm/kvm-trial.out" 2>&1; then
			accel=kvm
		fi
		echo $accel >"$guest_dir/accel"
	fi
	cat "$guest_dir/accel"
}

# Any guest: kernel, host root read-only by 9p, console to the log, output port to QEMU's stdout.
common_args()
{
	local accel=$1 append=$2 log=$3

	# TCG under load is slow, not stuck: no soft lock-up reports, only real ones by the deadlines.
	append+=" console=ttyS0 loglevel=5 panic=-1 nowatchdog"
	qemu_args+=(
		-accel "$accel" -smp 2 -nodefaults -display none -no-reboot -monitor none
		-kernel "$guest_dir/vmlinuz" -initrd "$guest_dir/initrd" -append "$append"
		-fsdev "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"
		-device "virtio-9p-pci,bus=pcie.0,fsdev=host,mount_tag=host"
		-device "virtio-serial-pci,bus=pcie.0"
		-chardev "file,id=out,path=/dev/fd/1" -device "virtserialport,chardev=out,name=kv.out"
	)
	if [[ $log == - ]]; then
		qemu_args+=(-serial mon:stdio)
	else
		qemu_args+=(-serial "file:$log")
	fi
}

nvme_args()
{
	local image=$1 size=$2

	rm -f "$image"
	truncate -s "$size" "$image"
	qemu_args+=(-drive "file=$image,if=none,id=nv,format=raw,cache=none,aio=threads"
		-device "nvme,drive=nv,serial=kv0,bus=pcie.0")
}

# Node 0 with both CPUs, node 1 without: slower by HMAT. Its range is right behind node 0's, which
# fills 2 GiB below the PCI hole and the rest from 4 GiB on. Node 2, where asked for, is like node 1.
fast_args()
{
	local node0_mb=$1 node1_mb=$2 node2_mb=$3

	qemu_args+=(-cpu max -M "q35,hmat=on" -m "$((node0_mb + node1_mb + node2_mb))M"
		-object "memory-backend-ram,id=m0,size=${node0_mb}M"
		-object "memory-backend-ram,id=m1,size=${node1_mb}M"
		-numa "node,nodeid=0,cpus=0-1,memdev=m0" -numa "node,nodeid=1,memdev=m1,initiator=0"
		-numa "dist,src=0,dst=1,val=30")
	hmat 0 100 200
	hmat 1 300 50
	((node2_mb)) || return 0
	qemu_args+=(-object "memory-backend-ram,id=m2,size=${node2_mb}M"
		-numa "node,nodeid=2,memdev=m2,initiator=0" -numa "dist,src=0,dst=2,val=30"
		-numa "dist,src=1,dst=2,val=40")
	hmat 2 300 50
}

hmat()
{
	local target=$1 ns=$2 gbps=$3 lb=hmat-lb,initiator=0,hierarchy=memory

	qemu_args+=(-numa "$lb,target=$target,data-type=access-latency,latency=$ns"
		-numa "$lb,target=$target,data-type=access-bandwidth,bandwidth=${gbps}G")
}

# CXL type-3 devices with volatile memory, each behind a root port of one host bridge, and two windows
# of addresses, each a node by CEDT; guest/cxl-region makes regions of them.
cxl_args()
{
	local node0_mb=$1 cxl_mb=$2 endpoints=$3 i

	qemu_args+=(-cpu "max,hypervisor=off" -M "q35,cxl=on" -m "${node0_mb}M,maxmem=8G,slots=8"
		-device "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1")
	# With several, firmware also says how far it is to the host bridge, which is node 1 for that.
	if ((endpoints > 1)); then
		qemu_args+=(-M hmat=on -object "memory-backend-ram,id=m0,size=${node0_mb}M"
			-numa "node,nodeid=0,cpus=0-1,memdev=m0" -numa "node,nodeid=1,initiator=0"
			-object "acpi-generic-port,id=port0,pci-bus=cxl.1,node=1")
		hmat 0 100 200
		hmat 1 150 100
	fi
	for ((i = 0; i < endpoints; i++)); do
		qemu_args+=(-object "memory-backend-ram,id=cxlm$i,share=on,size=${cxl_mb}M"
			-device "cxl-rp,port=$i,bus=cxl.1,id=rp$i,chassis=0,slot=$((2 + i))"
			-device "cxl-type3,bus=rp$i,volatile-memdev=cxlm$i,id=cxl-vmem$i")
	done
	qemu_args+=(-M "cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G,cxl-fmw.1.targets.0=cxl.1,cxl-fmw.1.size=4G"
		# Emulated CXL memory is no RAM to QEMU: a device reaches it through a bounce buffer, which
		# by default holds one page, and a larger transfer stops the device for good. virtio devices
		# have such a buffer of their own only behind an (absent) IOMMU.
		-global nvme.x-max-bounce-buffer-size=64M)
	local device
	for device in virtio-9p-pci virtio-serial-pci; do
		qemu_args+=(-global "$device.x-max-bounce-buffer-size=64M"
			-global "$device.iommu_platform=on" -global "$device.disable-legacy=on")
	done
}

fast_node1_base() { printf '0x%x' $(((4096 + $1 - 2048) << 20)); }
