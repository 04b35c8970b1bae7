/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A large array that is zero at first. Pages that nobody used cost nothing, and
 * huge pages are asked for: entries are met in any order, and a miss of the TLB
 * costs as much as one of the cache.
 */
#pragma once

#include <cstddef>
#include <new>
#include <sys/mman.h>

namespace cxlkv {

template <typename T> class ZeroArray {
public:
	/* Throws std::bad_alloc. */
	explicit ZeroArray(size_t nr) : bytes_(nr * sizeof(T))
	{
		void *at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			throw std::bad_alloc();
		madvise(at, bytes_, MADV_HUGEPAGE); /* a wish: fails without huge pages */
		data_ = static_cast<T *>(at);
	}
	~ZeroArray() { munmap(data_, bytes_); }
	ZeroArray(const ZeroArray &) = delete;
	ZeroArray &operator=(const ZeroArray &) = delete;

	T &operator[](size_t i) { return data_[i]; }
	const T &operator[](size_t i) const { return data_[i]; }

private:
	size_t bytes_;
	T *data_;
};

} // namespace cxlkv
