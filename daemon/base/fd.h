/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Owners of a file descriptor and of a mapping. */
#pragma once

#include <cstddef>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace cxlkv {

class Fd {
public:
	Fd() = default;
	explicit Fd(int fd) : fd_(fd) {}
	Fd(Fd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
	Fd &operator=(Fd &&other) noexcept
	{
		if (this != &other)
			reset(std::exchange(other.fd_, -1));
		return *this;
	}
	Fd(const Fd &) = delete;
	Fd &operator=(const Fd &) = delete;
	~Fd() { reset(); }

	[[nodiscard]] int get() const { return fd_; }
	explicit operator bool() const { return fd_ >= 0; }
	int release() { return std::exchange(fd_, -1); }
	void reset(int fd = -1)
	{
		if (fd_ >= 0)
			::close(fd_);
		fd_ = fd;
	}

private:
	int fd_ = -1;
};

class Mapping {
public:
	Mapping() = default;
	Mapping(void *addr, size_t bytes) : addr_(addr), bytes_(bytes) {}
	Mapping(Mapping &&other) noexcept
	    : addr_(std::exchange(other.addr_, nullptr)), bytes_(std::exchange(other.bytes_, 0))
	{
	}
	Mapping &operator=(Mapping &&other) noexcept
	{
		if (this != &other) {
			reset();
			addr_ = std::exchange(other.addr_, nullptr);
			bytes_ = std::exchange(other.bytes_, 0);
		}
		return *this;
	}
	Mapping(const Mapping &) = delete;
	Mapping &operator=(const Mapping &) = delete;
	~Mapping() { reset(); }

	[[nodiscard]] std::byte *data() const { return static_cast<std::byte *>(addr_); }
	[[nodiscard]] size_t size() const { return bytes_; }
	explicit operator bool() const { return addr_ != nullptr; }
	void reset()
	{
		if (addr_)
			::munmap(addr_, bytes_);
		addr_ = nullptr;
		bytes_ = 0;
	}

private:
	void *addr_ = nullptr;
	size_t bytes_ = 0;
};

} // namespace cxlkv
