/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/arena_files.h"

#include "sys/uffd.h"

#include <bit>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace cxlkv {

namespace {

/*
 * Only a memfd can have all three seals, so they also prove its kind. Without
 * SHRINK the client could truncate it under our mapping; a write seal would
 * make every punch fail. The size may be rounded up to a whole page.
 */
Result<> check_memfd(int fd, uint64_t bytes, const char *what)
{
	constexpr int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	constexpr int unwanted = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
	struct stat st;
	struct statfs fs;

	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return error(EINVAL, fmt::format("{} file: not a memfd of ordinary pages", what));
	if ((seals & wanted) != wanted || (seals & unwanted))
		return error(
			EPERM,
			fmt::format(
				"{} file: seals are {:#x}, must be SHRINK, GROW and SEAL without "
				"WRITE",
				what, seals));
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return error(EPERM, fmt::format("{} file: not open for reading and writing", what));
	if (fstat(fd, &st))
		return sys_error(fmt::format("{} file", what));
	uint64_t most = (bytes + uffd::page_bytes - 1) / uffd::page_bytes * uffd::page_bytes;
	auto size = static_cast<uint64_t>(st.st_size);
	if (size < bytes || size > most)
		return error(EINVAL,
			     fmt::format("{} file: {} bytes, must be {}", what, size, bytes));
	return ok();
}

Result<> check_userfaultfd(int fd)
{
	auto features = uffd::features_of(fd);
	if (!features)
		return features.error().in("userfaultfd file");
	if ((*features & uffd::required_features) != uffd::required_features ||
	    (*features & uffd::forbidden_features))
		return error(EINVAL, fmt::format("userfaultfd file: features {:#x}, must have "
						 "{:#x} and none of {:#x}",
						 *features, uffd::required_features,
						 uffd::forbidden_features));
	return ok();
}

} // namespace

uint64_t ring_bytes(uint32_t entries)
{
	return CXL_KV_RING_ENTRIES_OFFSET + uint64_t{entries} * sizeof(cxl_kv_hint);
}

Result<> check_arena_files(const Geometry &geometry, const ArenaFiles &files,
			   const ArenaOptions &options)
{
	const uint32_t entries = options.ring_entries;
	if (options.ring == RingKeeper::Client &&
	    (!std::has_single_bit(entries) || entries < CXL_KV_RING_MIN_ENTRIES ||
	     entries > CXL_KV_RING_MAX_ENTRIES))
		return error(EINVAL,
			     fmt::format("ring of {} entries, must be a power of two from {} to {}",
					 entries, CXL_KV_RING_MIN_ENTRIES,
					 CXL_KV_RING_MAX_ENTRIES));
	uint64_t base = options.client_base;
	if (!base || base % uffd::page_bytes || base + geometry.bytes() < base)
		return error(EINVAL,
			     fmt::format("arena at {:#x} with {} bytes", base, geometry.bytes()));

	if (auto good = check_memfd(files.memory.get(), geometry.bytes(), "memory"); !good)
		return good;
	if (auto good = check_memfd(files.table.get(),
				    uint64_t{geometry.nr_blocks()} * sizeof(uint64_t), "table");
	    !good)
		return good;
	if (options.ring == RingKeeper::Client)
		if (auto good = check_memfd(files.ring.get(), ring_bytes(entries), "ring"); !good)
			return good;
	return check_userfaultfd(files.uffd.get());
}

} // namespace cxlkv
