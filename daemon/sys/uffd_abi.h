/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names of the userfaultfd ABI that the oldest linux-libc-dev we build with
 * (6.1) lacks. Numbers from the kernel's documentation; each is an interface
 * that never changes. Whether the running kernel has one is probed, not assumed.
 */
#pragma once

#include <linux/userfaultfd.h>

#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#define _UFFDIO_POISON (0x08)
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, _UFFDIO_POISON, struct uffdio_poison)
#define UFFDIO_POISON_MODE_DONTWAKE ((__u64)1 << 0)
#endif

#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP ((__u64)1 << 1)
#endif
