#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# usage: kmod/build.sh KDIR OUT [MAKE-ARGUMENT...]
#
# Builds cxl_kv.ko against the kernel headers in KDIR, out of tree, as
# OUT/RELEASE/cxl_kv.ko. MAKE-ARGUMENT: W=1, C=2 for warnings and sparse.
set -euo pipefail

kdir=$1 out=$2
shift 2
here=$(realpath "$(dirname "$0")")
if [[ ! -r $kdir/include/config/kernel.release ]]; then
	echo "kmod: no prepared kernel headers in '$kdir'. For the running kernel install" \
		"linux-headers-$(uname -r) and set KDIR=/lib/modules/$(uname -r)/build" >&2
	exit 1
fi

dir=$out/$(<"$kdir/include/config/kernel.release")
mkdir -p "$dir"
dir=$(realpath "$dir")
# kbuild writes beside the sources, so it gets links to them. Links of deleted sources go.
find "$dir" -xtype l -delete
ln -sf "$here"/*.[ch] "$here/Kbuild" "$dir"
make -s -C "$kdir" M="$dir" CXL_KV_ROOT="$here/.." "$@" modules
echo "  KMOD  $dir/cxl_kv.ko"
