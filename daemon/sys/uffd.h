/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Thin wrappers of the userfaultfd ioctls: one call each, retries and partial
 * counts folded in. They return 0 or a positive errno, since callers act on
 * the number: ESRCH the process is gone, ENOENT the range is not mapped there
 * or not registered, EEXIST a page is there already.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <span>

struct uffd_msg;

namespace cxlkv::uffd {

constexpr uint64_t page_bytes = 4096;

/* What a client's userfaultfd must and must not have; see docs/spill-protocol.md. */
extern const uint64_t required_features;
extern const uint64_t forbidden_features;
/* An open /dev/userfaultfd, from which an unprivileged process makes userfaultfds with full rights.
 */
Result<Fd> open_device();
/* A new non-blocking userfaultfd of the calling process. */
Result<Fd> create(int device, uint64_t features);
/* One as a client has it: the required features, and of the optional ones those the kernel has. */
Result<Fd> create_for_client();
/* Features of a userfaultfd that somebody handed us; EINVAL when it is none or was never set up. */
Result<uint64_t> features_of(int fd);

int register_range(int fd, uint64_t addr, uint64_t bytes, uint64_t modes);

int protect(int fd, uint64_t addr, uint64_t bytes);
/* Also clears the markers that protection leaves on holes. */
int unprotect(int fd, uint64_t addr, uint64_t bytes, bool wake);
int wake(int fd, uint64_t addr, uint64_t bytes);
/* Zeroed pages; does not wake. EEXIST where any page was there (the others are made). */
int zeropage(int fd, uint64_t addr, uint64_t bytes);
/* Fills holes, leaves present pages alone, does not wake. *nr_existing counts those. */
int copy(int fd, uint64_t addr, const std::byte *from, uint64_t bytes, bool protect,
	 uint64_t *nr_existing);
/* Maps pages that the file has and the process does not; does not wake. EEXIST is success. */
int map_existing(int fd, uint64_t addr, uint64_t bytes, bool protect);
/* Touching the range gives SIGBUS from now on; does not wake. EINVAL: the kernel cannot. */
int poison(int fd, uint64_t addr, uint64_t bytes);

/* Events that wait, never blocking, whatever the client did to the file's flags. 0 = none. */
Result<size_t> read_events(int fd, std::span<uffd_msg> into);

} // namespace cxlkv::uffd
