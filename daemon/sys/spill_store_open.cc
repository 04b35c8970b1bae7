/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opening a store: superblock, size, recovery, buffers and ring. */
#include "sys/spill_store_impl.h"
#include "sys/spill_store_recovery.h"

#include <algorithm>
#include <cstring>
#include <sys/random.h>

namespace cxlkv {

namespace {

constexpr uint64_t kLogOffset = 1u << 20;
constexpr uint32_t kMinSegments = 4;
constexpr uint64_t kMaxSegmentBytes = 64u << 20;

Result<> check_options(const StoreOptions &o)
{
	if (o.extent_bytes == 0 || o.extent_bytes % disk::kPage || o.extent_bytes > (16u << 20))
		return error(EINVAL, fmt::format("extent_bytes {}: a multiple of 4096 up to 16 MiB", o.extent_bytes));
	if (o.queue_depth == 0 || o.queue_depth > 1024 || o.nr_buffers == 0 || o.nr_buffers > 4096)
		return error(EINVAL, "queue_depth must be 1 to 1024, nr_buffers 1 to 4096");
	return ok();
}

/* Segments are 1/64 of the store, within limits, and hold at least two of the largest extents. */
uint64_t choose_segment_bytes(uint64_t size, uint32_t extent_bytes)
{
	uint64_t least = 2 * (uint64_t{extent_bytes} + 2 * disk::kPage);
	uint64_t bytes = std::clamp(size / 64, least, std::max(least, kMaxSegmentBytes));

	return bytes / disk::kPage * disk::kPage;
}

} // namespace

Result<std::unique_ptr<SpillStore>> SpillStore::open(const StoreOptions &options, const IoWrapper &wrap)
{
	if (auto checked = check_options(options); !checked)
		return checked.error();
	auto impl = std::make_unique<Impl>();
	impl->options = options;
	if (auto opened = impl->open_file(); !opened)
		return opened.error();
	if (auto ready = impl->set_up_io(); !ready)
		return ready.error().in(options.path);
	if (wrap)
		impl->io = wrap(std::move(impl->io));
	return std::unique_ptr<SpillStore>(new SpillStore(std::move(impl)));
}

Result<> SpillStore::Impl::open_file()
{
	auto opened = StoreFile::open(options.path);
	if (!opened)
		return opened.error();
	file = std::move(*opened);
	/* Refuse what is not ours before changing its size. */
	bool fresh = file.size() == 0;
	if (!fresh) {
		auto found = load_super();
		if (!found)
			return found.error();
		fresh = !*found;
	}
	auto bytes = file.resize(options.size_bytes / disk::kPage * disk::kPage);
	if (!bytes)
		return bytes.error();
	if (fresh) {
		if (auto made = format(*bytes); !made)
			return made;
	}
	uint64_t nr = *bytes > super.log_offset ? (*bytes - super.log_offset) / super.segment_bytes : 0;
	if (nr < kMinSegments)
		return error(EINVAL, fmt::format("{}: {} bytes are too small for a store; give it at least {}",
						 options.path, *bytes,
						 kLogOffset + kMinSegments * super.segment_bytes));
	if (super.segment_bytes < options.extent_bytes + 2 * disk::kPage)
		return error(EINVAL, fmt::format("{}: made for extents of at most {} bytes, not {}; remove it or "
						 "lower the extent size",
						 options.path, super.segment_bytes - 2 * disk::kPage,
						 options.extent_bytes));
	segments = SegmentTable(static_cast<uint32_t>(nr), static_cast<uint32_t>(super.segment_bytes));
	auto recovered = recover(file, super, segments, index);
	if (!recovered)
		return recovered.error();
	seq = recovered->seq;
	version = recovered->version;
	if (!fresh)
		log_info("{}: {} blocks recovered", options.path, index.size());
	return ok();
}

/* False: nothing there yet. The copy serves where the first is damaged. */
Result<bool> SpillStore::Impl::load_super()
{
	AlignedBuffer pages = aligned_buffer(2 * disk::kPage);
	bool blank = true;

	if (file.size() < 2 * disk::kPage)
		return error(EINVAL, options.path + ": not a spill store, and not empty; it is left alone");
	if (auto done = file.read(0, {pages.get(), 2 * disk::kPage}); !done)
		return done.error();
	for (uint32_t i = 0; i < 2 * disk::kPage; i++)
		blank = blank && pages[i] == std::byte{0};
	if (blank)
		return false;
	for (int copy = 0; copy < 2; copy++) {
		memcpy(&super, pages.get() + copy * disk::kPage, sizeof(super));
		if (!intact(super))
			continue;
		if (super.version != disk::kFormatVersion)
			return error(EPROTONOSUPPORT,
				     fmt::format("{}: a spill store of format {}, this release knows {}; use the "
						 "release that made it, or remove it",
						 options.path, super.version, disk::kFormatVersion));
		if (super.segment_bytes == 0 || super.segment_bytes % disk::kPage ||
		    super.segment_bytes > UINT32_MAX || super.log_offset % disk::kPage ||
		    super.log_offset < 2 * disk::kPage || super.log_offset > UINT32_MAX)
			continue;
		return true;
	}
	return error(EINVAL, options.path + ": not a spill store, or its superblock is damaged; it is left alone "
					    "(remove it to start with an empty store)");
}

Result<> SpillStore::Impl::format(uint64_t bytes)
{
	AlignedBuffer page = aligned_buffer(disk::kPage);

	super = {};
	super.magic = disk::kSuperMagic;
	super.version = disk::kFormatVersion;
	super.log_offset = kLogOffset;
	super.segment_bytes = choose_segment_bytes(bytes, options.extent_bytes);
	if (getrandom(&super.store_id, sizeof(super.store_id), 0) != sizeof(super.store_id))
		return sys_error("getrandom");
	if (bytes < kLogOffset + kMinSegments * super.segment_bytes)
		return ok(); /* the caller says that it is too small */
	disk::seal(super);
	memcpy(page.get(), &super, sizeof(super));
	for (uint64_t copy = 0; copy < 2; copy++) {
		if (auto done = file.write(copy * disk::kPage, {page.get(), disk::kPage}); !done)
			return done;
	}
	return file.flush();
}

Result<> SpillStore::Impl::set_up_io()
{
	uint32_t nr = options.nr_buffers + 1; /* one for tombstones */
	void *at = mmap(nullptr, nr * buffer_stride(), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (at == MAP_FAILED)
		return sys_error("bounce buffers");
	memory = Mapping(at, nr * buffer_stride());
	tombstone_buffer = options.nr_buffers;
	std::vector<iovec> vectors;
	for (uint32_t i = 0; i < nr; i++)
		vectors.push_back({buffer(i), buffer_stride()});
	for (uint32_t i = options.nr_buffers; i-- > 0;)
		free_buffers.push_back(i);
	int fd = file.fd();
	auto made = UringIo::create(options.queue_depth, std::span(&fd, 1), vectors);
	if (!made)
		return made.error();
	io = std::move(*made);
	return ok();
}

} // namespace cxlkv
