/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file or block device below a store: opened O_DIRECT, locked, sized. Knows nothing of the
 * format. */
#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

namespace cxlkv {

struct FreeDeleter {
	void operator()(void *p) const { free(p); }
};
/* Page-aligned memory for synchronous O_DIRECT I/O. */
using AlignedBuffer = std::unique_ptr<std::byte[], FreeDeleter>;
AlignedBuffer aligned_buffer(size_t bytes);

class StoreFile {
public:
	StoreFile() = default;
	~StoreFile();
	StoreFile(StoreFile &&) = default;
	StoreFile &operator=(StoreFile &&) = default;
	/*
	 * Creates a regular file where there is nothing, mode 0600 whatever the umask is.
	 * EBUSY: another process has it.
	 */
	static Result<StoreFile> open(const std::string &path);
	/* What is there, locked as well, as reading while a daemon writes shows nonsense. */
	static Result<StoreFile> open_readonly(const std::string &path);

	/* Bytes that can be used, at most cap. */
	[[nodiscard]] uint64_t usable(uint64_t cap) const
	{
		return device_ ? std::min(cap, size_) : cap;
	}
	/* Makes a regular file at least that long, with room on its file system for it. */
	Result<> reserve(uint64_t bytes);
	/* Makes a longer one that long. */
	Result<> cut(uint64_t bytes);

	/* Whole pages; memory and offset page-aligned. Short reads and writes are EIO. */
	Result<> read(uint64_t offset, std::span<std::byte> bytes) const;
	Result<> write(uint64_t offset, std::span<const std::byte> bytes) const;
	Result<> flush() const;
	/*
	 * A store has what users said: a file that more than its owner could open, from a
	 * copy or another umask, is made private. A device's mode is left to udev.
	 */
	[[nodiscard]] Result<> close_to_others() const;
	Result<> zero(uint64_t from, uint64_t to) const;

	[[nodiscard]] int fd() const { return fd_.get(); }
	[[nodiscard]] bool is_device() const { return device_; }
	[[nodiscard]] uint64_t size() const { return size_; }
	[[nodiscard]] const std::string &path() const { return path_; }

private:
	static Result<StoreFile> open_with(const std::string &path, int flags);
	Result<> lock();

	std::string path_;
	Fd fd_;
	bool device_ = false;
	uint64_t size_ = 0;
};

} // namespace cxlkv
