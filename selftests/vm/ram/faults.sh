#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Loading the module where there is a node to adopt, with each allocation on the way failing in turn.
exec build/vmtest/kmod/fault_test --gtest_filter='Insmod.*'
