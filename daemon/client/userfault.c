// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The process's userfaultfd. It has to have full rights (a user-mode-only one
 * makes system calls on spilled pages fail), which an ordinary user gets only
 * through an open /dev/userfaultfd: the manager sends its own.
 */
#include "client/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 6.6; Debian 12's headers are older. */
#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#endif

#define REQUIRED_FEATURES                                                              \
	((uint64_t)(UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |            \
		    UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | \
		    UFFD_FEATURE_EXACT_ADDRESS | UFFD_FEATURE_THREAD_ID))
#define OPTIONAL_FEATURES ((uint64_t)UFFD_FEATURE_POISON)

static int from_device(int device)
{
	int fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

static int from_manager(struct cxl_kv *kv)
{
	struct stat st;
	int device;

	pthread_mutex_lock(&kv->lock);
	device = kv->userfault_device;
	pthread_mutex_unlock(&kv->lock);
	if (device < 0)
		return -ENODEV;
	/* An ioctl on anything else could mean anything. */
	if (fstat(device, &st) || !S_ISCHR(st.st_mode))
		return -ENOTTY;
	return from_device(device);
}

static int from_own_rights(void)
{
	int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int fd;

	if (device >= 0) {
		fd = from_device(device);
		close(device);
		if (fd >= 0)
			return fd;
	}
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static int new_file(struct cxl_kv *kv)
{
	int from_peer = from_manager(kv);
	int fd;

	if (from_peer >= 0)
		return from_peer;
	fd = from_own_rights();
	if (fd < 0)
		kv_log(kv,
		       "no userfaultfd: the manager's file: %s; our own: %s. Give cxl-kvd access "
		       "to "
		       "/dev/userfaultfd",
		       strerror(-from_peer), strerror(-fd));
	return fd;
}

/* The handshake fixes a file's features, so what is on offer is asked on a file of its own. */
static int offered_features(struct cxl_kv *kv, uint64_t *features)
{
	struct uffdio_api api = {.api = UFFD_API};
	int fd = new_file(kv);
	int rc = 0;

	if (fd < 0)
		return fd;
	if (ioctl(fd, UFFDIO_API, &api))
		rc = -errno;
	close(fd);
	*features = api.features;
	return rc;
}

int kv_userfault_create(struct cxl_kv *kv)
{
	struct uffdio_api api = {.api = UFFD_API};
	uint64_t features;
	int fd, rc;

	rc = offered_features(kv, &features);
	if (rc)
		return rc;
	if (~features & REQUIRED_FEATURES) {
		kv_log(kv, "userfaultfd lacks features 0x%llx: Linux 6.1 or newer is needed",
		       (unsigned long long)(~features & REQUIRED_FEATURES));
		return -EOPNOTSUPP;
	}
	api.features = REQUIRED_FEATURES | (features & OPTIONAL_FEATURES);
	fd = new_file(kv);
	if (fd < 0)
		return fd;
	if (ioctl(fd, UFFDIO_API, &api)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

int kv_userfault_register(int fd, void *base, uint64_t bytes)
{
	/* Without MINOR a stray page that someone else made in a hole would be served silently. */
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)base, .len = bytes},
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP |
			UFFDIO_REGISTER_MODE_MINOR,
	};
	const uint64_t needed = 1ull << _UFFDIO_WAKE | 1ull << _UFFDIO_COPY |
				1ull << _UFFDIO_WRITEPROTECT | 1ull << _UFFDIO_CONTINUE;

	if (ioctl(fd, UFFDIO_REGISTER, &range))
		return -errno;
	return needed & ~range.ioctls ? -EOPNOTSUPP : 0;
}
