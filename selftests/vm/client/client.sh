#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The tests of libcxl_kv with a real daemon, here with the module as keeper of the arenas; nothing
# may be left that keeps the module.
insmod "build/kmod/$(uname -r)/cxl_kv.ko" >&2 || exit 1
build/native/client_daemon_test
status=$?
rmmod cxl_kv >&2 || status=1
exit $status
