#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# cxl-kv record with the module as keeper of the arenas and of the hints' rings.
insmod "build/kmod/$(uname -r)/cxl_kv.ko" >&2 || exit 1
build/native/record_test
status=$?
rmmod cxl_kv >&2 || status=1
exit $status
