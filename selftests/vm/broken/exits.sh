#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
exit 7
