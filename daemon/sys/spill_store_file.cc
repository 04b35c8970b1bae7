/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_file.h"

#include "base/log.h"
#include "sys/spill_store_disk.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/fs.h>
#include <signal.h>
#include <sstream>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <thread>

namespace cxlkv {

namespace {

/* The kernel takes a ring apart some time after its process has ended. */
constexpr auto kRingTeardown = std::chrono::seconds(5);

/* Process that holds a flock on the inode, from /proc/locks; 0 where that does not say. */
pid_t lock_holder(const struct stat &st)
{
	std::ifstream locks("/proc/locks");
	std::string inode =
		fmt::format("{:02x}:{:02x}:{}", major(st.st_dev), minor(st.st_dev), st.st_ino);

	for (std::string line; std::getline(locks, line);) {
		std::istringstream words(line);
		std::string number, type, advisory, access, where;
		pid_t pid = 0;
		words >> number >> type >> advisory >> access >> pid >> where;
		if (type == "FLOCK" && where == inode)
			return pid;
	}
	return 0;
}

Result<> reserve_room(int fd, uint64_t size, uint64_t bytes, const std::string &path)
{
	if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0)
		return ok();
	if (errno == EOPNOTSUPP) {
		if (bytes <= size || ftruncate(fd, static_cast<off_t>(bytes)) == 0)
			return ok();
		return sys_error(path);
	}
	if (errno == ENOSPC)
		return error(
			ENOSPC,
			fmt::format("{}: the file system has no room for {} bytes; lower [cold] "
				    "size or free some",
				    path, bytes));
	return sys_error(path + ": reserve room");
}

bool can_be_store(const struct stat &st)
{
	return S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
}

Error not_a_store(const std::string &path)
{
	return error(EINVAL, path + ": neither a regular file nor a block device");
}

} // namespace

AlignedBuffer aligned_buffer(size_t bytes)
{
	return AlignedBuffer(static_cast<std::byte *>(aligned_alloc(disk::kPage, bytes)));
}

Result<StoreFile> StoreFile::open(const std::string &path)
{
	struct stat st;
	bool device = stat(path.c_str(), &st) == 0 && S_ISBLK(st.st_mode);

	/*
	 * O_EXCL without O_CREAT: a block device that is mounted or held by the kernel is
	 * refused. In the place of a drive that is gone no file is made, which would be
	 * in memory.
	 */
	bool make = !device && !path.starts_with("/dev/");
	int flags = O_RDWR | O_CLOEXEC | (device ? O_EXCL : 0) | (make ? O_CREAT : 0);
	/* As for the lock: a device is claimed until the ring of a killed process is gone. */
	auto deadline = std::chrono::steady_clock::now() + kRingTeardown;
	for (;;) {
		auto file = open_with(path, flags);
		if (file || !device || file.error().code != EBUSY)
			return file;
		if (std::chrono::steady_clock::now() > deadline)
			return error(EBUSY, path + ": mounted, or in use by another process");
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
}

Result<StoreFile> StoreFile::open_readonly(const std::string &path)
{
	return open_with(path, O_RDONLY | O_CLOEXEC);
}

Result<StoreFile> StoreFile::open_with(const std::string &path, int flags)
{
	StoreFile file;
	struct stat st;

	file.path_ = path;
	/* Also before open(), which waits for the other end of a FIFO. */
	if (stat(path.c_str(), &st) == 0 && !can_be_store(st))
		return not_a_store(path);
	file.fd_.reset(::open(path.c_str(), flags | O_DIRECT, 0600));
	if (!file.fd_ && errno == EINVAL) {
		file.fd_.reset(::open(path.c_str(), flags, 0600));
		if (file.fd_)
			log_warning("{}: no O_DIRECT here, using the page cache: spilled blocks "
				    "stay in memory "
				    "until written back",
				    path);
	}
	if (!file.fd_ && errno == ENOENT && (flags & O_CREAT))
		return error(ENOENT, path + ": the folder does not exist");
	if (!file.fd_)
		return sys_error(path);
	if (fstat(file.fd_.get(), &st) < 0)
		return sys_error(path);
	if (!can_be_store(st))
		return not_a_store(path);
	file.device_ = S_ISBLK(st.st_mode);
	auto locked = file.lock();
	if (!locked)
		return locked.error();
	file.size_ = static_cast<uint64_t>(st.st_size);
	if (file.device_ && ioctl(file.fd_.get(), BLKGETSIZE64, &file.size_) < 0)
		return sys_error(path + ": size");
	return file;
}

Result<> StoreFile::close_to_others() const
{
	struct stat st;

	if (fstat(fd_.get(), &st) < 0)
		return sys_error(path_);
	if (device_ || !(st.st_mode & 0077))
		return ok();
	if (fchmod(fd_.get(), 0600) < 0) {
		int err = errno;
		return error(err, fmt::format("{}: mode {:04o} lets others open it, and it cannot "
					      "be changed to 0600 ({}); chown or remove it",
					      path_, st.st_mode & 07777, strerror(err)));
	}
	log_warning("{}: mode {:04o} let others open it, now 0600", path_, st.st_mode & 07777);
	return ok();
}

/* A ring that had the file registered keeps it open a while longer: unlock, do not only close. */
StoreFile::~StoreFile()
{
	if (fd_)
		flock(fd_.get(), LOCK_UN);
}

/*
 * The kernel gives the lock of a killed process up only after its io_uring is
 * torn down, a moment after the process is gone: wait for that, not for a
 * living holder.
 */
Result<> StoreFile::lock()
{
	auto deadline = std::chrono::steady_clock::now() + kRingTeardown;
	struct stat st;

	if (fstat(fd_.get(), &st) < 0)
		return sys_error(path_);
	while (flock(fd_.get(), LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return sys_error(path_ + ": lock");
		pid_t pid = lock_holder(st);
		bool alive = pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
		if (alive || std::chrono::steady_clock::now() > deadline)
			return error(EBUSY, fmt::format("{}: in use by {}; only one process at a "
							"time may have a store open",
							path_,
							pid > 0 ? fmt::format("process {}", pid)
								: std::string("another process")));
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
	return ok();
}

Result<> StoreFile::reserve(uint64_t bytes)
{
	if (device_)
		return ok();
	if (auto done = reserve_room(fd_.get(), size_, bytes, path_); !done)
		return done;
	size_ = std::max(size_, bytes);
	return ok();
}

Result<> StoreFile::cut(uint64_t bytes)
{
	if (device_ || size_ <= bytes)
		return ok();
	if (ftruncate(fd_.get(), static_cast<off_t>(bytes)) < 0)
		return sys_error(path_ + ": truncate to the size cap");
	size_ = bytes;
	return ok();
}

Result<> StoreFile::read(uint64_t offset, std::span<std::byte> bytes) const
{
	while (!bytes.empty()) {
		ssize_t n =
			pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sys_error(fmt::format("{}: read at {}", path_, offset));
		if (n == 0 || n % disk::kPage)
			return error(EIO, fmt::format("{}: short read at {}", path_, offset));
		bytes = bytes.subspan(static_cast<size_t>(n));
		offset += static_cast<uint64_t>(n);
	}
	return ok();
}

Result<> StoreFile::write(uint64_t offset, std::span<const std::byte> bytes) const
{
	while (!bytes.empty()) {
		ssize_t n =
			pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sys_error(fmt::format("{}: write at {}", path_, offset));
		if (n == 0 || n % disk::kPage)
			return error(EIO, fmt::format("{}: short write at {}", path_, offset));
		bytes = bytes.subspan(static_cast<size_t>(n));
		offset += static_cast<uint64_t>(n);
	}
	return ok();
}

Result<> StoreFile::zero(uint64_t from, uint64_t to) const
{
	constexpr uint64_t kStep = 1u << 20;
	AlignedBuffer zeros = aligned_buffer(kStep);

	memset(zeros.get(), 0, kStep);
	for (; from < to; from += kStep) {
		auto done = write(from, {zeros.get(), std::min(kStep, to - from)});
		if (!done)
			return done;
	}
	return ok();
}

Result<> StoreFile::flush() const
{
	return fdatasync(fd_.get()) == 0 ? ok() : Result<>(sys_error(path_ + ": flush"));
}

} // namespace cxlkv
