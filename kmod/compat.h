/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that this source builds for, and the check
 * that it is one of them. Nothing else in the module looks at a version.
 */
#ifndef CXL_KV_COMPAT_H
#define CXL_KV_COMPAT_H

#include <linux/fs.h>
#include <linux/userfaultfd_k.h>
#include <linux/version.h>
#include <asm/cpufeature.h>

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
 * Whose address space a userfaultfd serves; its structure is in a header from 6.9
 * on. Before, a client could register that of another process, whose faults would
 * then reach the manager as the client's: they would find no block.
 */
static inline bool cxl_kv_uffd_serves(const struct file *uffd, const struct mm_struct *mm)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	const struct userfaultfd_ctx *ctx = uffd->private_data;

	return ctx->mm == mm;
#else
	return true;
#endif
}

/* Whether CPUs flush each other's TLB by an instruction: known to kernels from 6.15 on. */
#ifdef X86_FEATURE_INVLPGB
#define CXL_KV_TLB_BROADCAST cpu_feature_enabled(X86_FEATURE_INVLPGB)
#else
#define CXL_KV_TLB_BROADCAST false
#endif

#endif /* CXL_KV_COMPAT_H */
