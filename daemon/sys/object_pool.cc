/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/object_pool.h"

#include "sys/arena_files.h"
#include "sys/uffd.h"
#include "sys/uffd_abi.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>

namespace cxlkv {

namespace {

/* Chunks that hints and orders see as one sequence. */
constexpr uint32_t chunks_per_slot = 1024;

Geometry pool_geometry(uint32_t nr_chunks, uint32_t chunk_bytes)
{
	Geometry geometry{};

	/* A chunk is one block of as many tokens as can be: chunks that happen to be neighbours
	 * are of different objects, and no window of tokens reaches from one to the next. */
	geometry.nr_slots = std::max(1u, nr_chunks / chunks_per_slot);
	geometry.nr_layers = geometry.nr_kv_heads = geometry.head_dim = 1;
	geometry.elem_bytes = 2;
	geometry.tokens_per_block = chunk_bytes / 4;
	geometry.tokens_per_slot = std::min(nr_chunks, chunks_per_slot) * geometry.tokens_per_block;
	geometry.block_bytes = chunk_bytes;
	geometry.layer_window = {0};
	return geometry;
}

Result<Fd> sealed_memfd(const char *name, uint64_t bytes)
{
	Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));

	if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) ||
	    fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return sys_error(fmt::format("{} of the object pool", name));
	return fd;
}

Result<Mapping> map(const Fd &fd, uint64_t bytes)
{
	void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			fd.get(), 0);

	if (at == MAP_FAILED)
		return sys_error(fmt::format("map {} bytes of the object pool", bytes));
	Mapping mapping(at, bytes);
	if (madvise(at, bytes, MADV_DONTFORK) || madvise(at, bytes, MADV_DONTDUMP))
		return sys_error("madvise the object pool");
	return mapping;
}

} // namespace

Result<std::unique_ptr<ObjectPool>>
ObjectPool::create(uint32_t nr_chunks, uint32_t chunk_bytes,
		   const std::function<bool(uint32_t)> &has_record)
{
	Geometry geometry = pool_geometry(nr_chunks, chunk_bytes);
	if (std::string wrong = check_geometry(geometry); !wrong.empty())
		return error(EINVAL, "object pool: " + wrong);
	std::unique_ptr<ObjectPool> pool(new ObjectPool(geometry));
	if (auto made = pool->make_files(); !made)
		return made.error();
	/* A hole whose word says that it had data takes what the store has, or is lost. */
	for (uint32_t block = 0; block < geometry.nr_blocks(); block++)
		if (has_record(block))
			pool->word(block) = CXL_KV_COLD;
	return pool;
}

/* As libcxl_kv does for an engine; nothing touches this mapping, it stands for the client's. */
Result<> ObjectPool::make_files()
{
	const uint64_t bytes = geometry_.bytes(), table_bytes = uint64_t{geometry_.nr_blocks()} * 8;
	auto memory = sealed_memfd("cxl_kv_objects", bytes);
	auto table = sealed_memfd("cxl_kv_objects_table", table_bytes);
	auto ring = sealed_memfd("cxl_kv_objects_ring", ring_bytes(ring_entries));
	for (auto *file : {&memory, &table, &ring})
		if (!*file)
			return file->error();
	files_ = {std::move(*memory), Fd(), std::move(*table), std::move(*ring)};
	auto memory_map = map(files_.memory, bytes);
	auto table_map = map(files_.table, table_bytes);
	auto ring_map = map(files_.ring, ring_bytes(ring_entries));
	for (auto *mapping : {&memory_map, &table_map, &ring_map})
		if (!*mapping)
			return mapping->error();
	memory_ = std::move(*memory_map);
	table_ = std::move(*table_map);
	ring_ = std::move(*ring_map);
	reinterpret_cast<cxl_kv_ring *>(ring_.data())->nr_entries = ring_entries;
	if (madvise(memory_.data(), bytes, MADV_NOHUGEPAGE) && errno != EINVAL)
		return sys_error("madvise the object pool");

	auto fd = uffd::create_for_client();
	if (!fd)
		return fd.error();
	files_.uffd = std::move(*fd);
	int err = uffd::register_range(files_.uffd.get(),
				       reinterpret_cast<uint64_t>(memory_.data()), bytes,
				       UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP |
					       UFFDIO_REGISTER_MODE_MINOR);
	return err ? error(err, fmt::format("register the object pool: {}", strerror(err))) : ok();
}

Result<ArenaFiles> ObjectPool::files() const
{
	auto dup = [](const Fd &fd) { return Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); };
	ArenaFiles files{dup(files_.memory), dup(files_.uffd), dup(files_.table), dup(files_.ring)};

	if (!files.memory || !files.uffd || !files.table || !files.ring)
		return sys_error("files of the object pool");
	return files;
}

ArenaOptions ObjectPool::options() const
{
	ArenaOptions options;

	options.key = key;
	options.pid = getpid();
	options.client_base = reinterpret_cast<uint64_t>(memory_.data());
	options.ring_entries = ring_entries;
	options.name = "objects";
	return options;
}

void ObjectPool::lease(uint32_t block) const
{
	word(block).fetch_add(CXL_KV_WORD_LEASES_ONE, std::memory_order_acq_rel);
}

void ObjectPool::unlease(uint32_t block) const
{
	word(block).fetch_sub(CXL_KV_WORD_LEASES_ONE, std::memory_order_release);
}

cxl_kv_state ObjectPool::state(uint32_t block) const
{
	return static_cast<cxl_kv_state>(word(block).load(std::memory_order_acquire) &
					 CXL_KV_WORD_STATE_MASK);
}

uint8_t ObjectPool::tier(uint32_t block) const
{
	return static_cast<uint8_t>(
		(word(block).load(std::memory_order_relaxed) & CXL_KV_WORD_TIER_MASK) >>
		CXL_KV_WORD_TIER_SHIFT);
}

int ObjectPool::read(uint32_t block, std::span<std::byte> into) const
{
	auto at = static_cast<off_t>(uint64_t{block} * geometry_.block_bytes);
	ssize_t nr = pread(files_.memory.get(), into.data(), into.size(), at);

	if (nr < 0)
		return errno;
	return static_cast<size_t>(nr) == into.size() ? 0 : EIO;
}

int ObjectPool::write(uint32_t block, uint32_t offset, std::span<const std::byte> from) const
{
	auto at = static_cast<off_t>(uint64_t{block} * geometry_.block_bytes + offset);
	ssize_t nr = pwrite(files_.memory.get(), from.data(), from.size(), at);

	if (nr < 0)
		return errno;
	return static_cast<size_t>(nr) == from.size() ? 0 : EIO;
}

/* One producer. A full ring loses the hint: it is one. */
void ObjectPool::hint(cxl_kv_hint hint, const Extent &extent) const
{
	auto *ring = reinterpret_cast<cxl_kv_ring *>(ring_.data());
	auto *entries = reinterpret_cast<cxl_kv_hint *>(ring_.data() + CXL_KV_RING_ENTRIES_OFFSET);
	uint32_t per_slot = geometry_.blocks_per_slot();

	/* A run may go on in the next slot. */
	for (uint32_t block = extent.first, end = block + extent.nr; block < end;) {
		uint32_t head = ring->head;
		if (head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) >= ring_entries) {
			ring->nr_dropped++;
			return;
		}
		hint.slot = block / per_slot;
		hint.block = block % per_slot;
		hint.nr_blocks = std::min(end - block, per_slot - hint.block);
		entries[head & (ring_entries - 1)] = hint;
		__atomic_store_n(&ring->head, head + 1, __ATOMIC_RELEASE);
		block += hint.nr_blocks;
	}
}

void ObjectPool::hint_score(const Extent &extent, uint16_t score) const
{
	cxl_kv_hint used{};

	used.kind = CXL_KV_HINT_SCORE;
	used.score = score;
	hint(used, extent);
}

void ObjectPool::hint_priority(const Extent &extent, uint8_t priority, uint32_t lifetime_ms) const
{
	cxl_kv_hint pin{};

	pin.kind = CXL_KV_HINT_PIN;
	pin.priority = priority;
	pin.lifetime_ms = lifetime_ms;
	hint(pin, extent);
}

} // namespace cxlkv
