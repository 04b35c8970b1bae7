/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/uffd.h"

#include "sys/uffd_abi.h"

#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

namespace cxlkv::uffd {

const uint64_t required_features = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |
				   UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
/*
 * EVENT_FORK would put files into our table at each read, EVENT_UNMAP blocks
 * the client until we read, SIGBUS gives no events, WP_ASYNC loses writes.
 */
const uint64_t forbidden_features = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
				    UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP |
				    UFFD_FEATURE_SIGBUS | UFFD_FEATURE_WP_ASYNC;

Result<Fd> open_device()
{
	Fd fd(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
	if (!fd)
		return sys_error("open /dev/userfaultfd");
	return fd;
}

Result<Fd> create(int device, uint64_t features)
{
	Fd fd(ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK));
	if (!fd)
		return sys_error("make a userfaultfd");
	struct uffdio_api api = {.api = UFFD_API, .features = features, .ioctls = 0};
	if (ioctl(fd.get(), UFFDIO_API, &api))
		return sys_error(fmt::format("userfaultfd features {:#x}", features));
	return fd;
}

static Result<uint64_t> client_features(int device)
{
	/* UFFDIO_API can be called once a file, so ask on one of its own. */
	Fd probe(ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK));
	if (!probe)
		return sys_error("make a userfaultfd");
	struct uffdio_api api = {.api = UFFD_API, .features = 0, .ioctls = 0};
	if (ioctl(probe.get(), UFFDIO_API, &api))
		return sys_error("ask for userfaultfd features");
	if ((api.features & required_features) != required_features)
		return error(EOPNOTSUPP,
			     fmt::format("the kernel's userfaultfd lacks features {:#x}; Linux 6.1 "
					 "or newer has them",
					 required_features & ~api.features));
	uint64_t optional =
		UFFD_FEATURE_EXACT_ADDRESS | UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_POISON;
	return required_features | (api.features & optional);
}

Result<Fd> create_for_client()
{
	auto device = open_device();
	if (!device)
		return device.error();
	auto features = client_features(device->get());
	if (!features)
		return features.error();
	return create(device->get(), *features);
}

Result<uint64_t> features_of(int fd)
{
	char target[64] = "";
	ssize_t n =
		readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), target, sizeof(target) - 1);
	if (n < 0 || std::string(target, static_cast<size_t>(n)) != "anon_inode:[userfaultfd]")
		return error(EINVAL, "not a userfaultfd");

	FILE *info = fopen(fmt::format("/proc/self/fdinfo/{}", fd).c_str(), "re");
	if (!info)
		return sys_error("read the userfaultfd's fdinfo");
	char line[128];
	unsigned long long features = 0;
	bool found = false;
	while (!found && fgets(line, sizeof(line), info))
		found = sscanf(line, "API: aa:%llx:", &features) == 1;
	fclose(info);
	/* The kernel sets bit 31 of the features once UFFDIO_API was done. */
	if (!found || !(features & (1ull << 31)))
		return error(EINVAL, "a userfaultfd on which UFFDIO_API was not done");
	return static_cast<uint64_t>(features & ~(1ull << 31));
}

int register_range(int fd, uint64_t addr, uint64_t bytes, uint64_t modes)
{
	struct uffdio_register reg = {.range = {addr, bytes}, .mode = modes, .ioctls = 0};
	return ioctl(fd, UFFDIO_REGISTER, &reg) ? errno : 0;
}

static int write_protect(int fd, uint64_t addr, uint64_t bytes, uint64_t mode)
{
	struct uffdio_writeprotect wp = {.range = {addr, bytes}, .mode = mode};
	int ret;

	do /* EAGAIN: the process is changing its mappings right now. */
		ret = ioctl(fd, UFFDIO_WRITEPROTECT, &wp) ? errno : 0;
	while (ret == EAGAIN);
	return ret;
}

int protect(int fd, uint64_t addr, uint64_t bytes)
{
	return write_protect(fd, addr, bytes, UFFDIO_WRITEPROTECT_MODE_WP);
}

int unprotect(int fd, uint64_t addr, uint64_t bytes, bool wake)
{
	return write_protect(fd, addr, bytes, wake ? 0 : UFFDIO_WRITEPROTECT_MODE_DONTWAKE);
}

int wake(int fd, uint64_t addr, uint64_t bytes)
{
	struct uffdio_range range = {addr, bytes};
	return ioctl(fd, UFFDIO_WAKE, &range) ? errno : 0;
}

/*
 * The filling ioctls share one shape: they report bytes done through a count,
 * which is negative, or zero, when the first page failed. step(done) runs one
 * of them on the rest of the range and returns that count. *nr_existing gets
 * the pages that were there already and were skipped.
 */
template <typename Step> static int fill(uint64_t bytes, uint64_t *nr_existing, Step step)
{
	uint64_t done = 0;

	while (done < bytes) {
		int64_t count = step(done);
		if (count > 0)
			done += static_cast<uint64_t>(count);
		else if (count == -EEXIST)
			done += page_bytes, ++*nr_existing;
		else if (count != -EAGAIN && count != 0)
			return static_cast<int>(-count);
	}
	return 0;
}

int zeropage(int fd, uint64_t addr, uint64_t bytes)
{
	uint64_t nr_existing = 0;
	int ret = fill(bytes, &nr_existing, [&](uint64_t done) -> int64_t {
		struct uffdio_zeropage arg = {.range = {addr + done, bytes - done},
					      .mode = UFFDIO_ZEROPAGE_MODE_DONTWAKE,
					      .zeropage = 0};
		if (ioctl(fd, UFFDIO_ZEROPAGE, &arg) && errno != EAGAIN)
			return -errno;
		return arg.zeropage;
	});
	return ret ? ret : nr_existing ? EEXIST : 0;
}

int copy(int fd, uint64_t addr, const std::byte *from, uint64_t bytes, bool protect,
	 uint64_t *nr_existing)
{
	uint64_t mode = UFFDIO_COPY_MODE_DONTWAKE | (protect ? UFFDIO_COPY_MODE_WP : 0);

	return fill(bytes, nr_existing, [&](uint64_t done) -> int64_t {
		struct uffdio_copy arg = {.dst = addr + done,
					  .src = reinterpret_cast<uint64_t>(from + done),
					  .len = bytes - done,
					  .mode = mode,
					  .copy = 0};
		if (ioctl(fd, UFFDIO_COPY, &arg) && errno != EAGAIN)
			return -errno;
		return arg.copy;
	});
}

int map_existing(int fd, uint64_t addr, uint64_t bytes, bool protect)
{
	uint64_t mode = UFFDIO_CONTINUE_MODE_DONTWAKE | (protect ? UFFDIO_CONTINUE_MODE_WP : 0);
	uint64_t nr_existing = 0;

	return fill(bytes, &nr_existing, [&](uint64_t done) -> int64_t {
		struct uffdio_continue arg = {
			.range = {addr + done, bytes - done}, .mode = mode, .mapped = 0};
		if (ioctl(fd, UFFDIO_CONTINUE, &arg) && errno != EAGAIN)
			return -errno;
		return arg.mapped;
	});
}

int poison(int fd, uint64_t addr, uint64_t bytes)
{
	uint64_t nr_existing = 0;
	int ret = fill(bytes, &nr_existing, [&](uint64_t done) -> int64_t {
		struct uffdio_poison arg = {.range = {addr + done, bytes - done},
					    .mode = UFFDIO_POISON_MODE_DONTWAKE,
					    .updated = 0};
		if (ioctl(fd, UFFDIO_POISON, &arg) && errno != EAGAIN)
			return -errno;
		return arg.updated;
	});
	return ret == ENOTTY ? EINVAL : ret;
}

Result<size_t> read_events(int fd, std::span<uffd_msg> into)
{
	struct iovec iov = {into.data(), into.size_bytes()};
	ssize_t n = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);

	if (n < 0 && errno == EOPNOTSUPP) /* before Linux 6.10; the file is non-blocking unless
					     tampered with */
		n = read(fd, into.data(), into.size_bytes());
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return size_t{0};
	if (n < 0)
		return sys_error("read userfaultfd events");
	return static_cast<size_t>(n) / sizeof(uffd_msg);
}

} // namespace cxlkv::uffd
