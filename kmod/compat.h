/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that this source builds for, and the check
 * that it is one of them. Nothing else in the module looks at a version.
 */
#ifndef CXL_KV_COMPAT_H
#define CXL_KV_COMPAT_H

#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
#error "cxl_kv needs Linux 6.8 or newer"
#endif
#if !defined(CONFIG_X86_64)
#error "cxl_kv is written for x86-64: its page-table walk relies on that format"
#endif
#if !defined(CONFIG_MEMORY_HOTREMOVE) || !defined(CONFIG_NUMA) || !defined(CONFIG_SHMEM)
#error "cxl_kv needs CONFIG_MEMORY_HOTREMOVE, CONFIG_NUMA and CONFIG_SHMEM"
#endif
#if !defined(CONFIG_MMU_NOTIFIER)
#error "cxl_kv needs CONFIG_MMU_NOTIFIER to see the end of a client (any of KVM, RDMA, DRM sets it)"
#endif

/*
 * __flush_tlb_all() is exported to all modules and enough to flush one mm. Not
 * so from 6.15 on: translations may live in an address space identifier that
 * only a broadcast reaches, and later the export is kept for kvm.
 */
#define CXL_KV_CAN_FLUSH_TLB (LINUX_VERSION_CODE < KERNEL_VERSION(6, 15, 0))

#endif /* CXL_KV_COMPAT_H */
