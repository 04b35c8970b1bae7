/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mapping an arena's files and keeping the daemon's record of its blocks. Hints: arena_hints.cc. */
#include "sys/arena.h"

#include "base/log.h"
#include "sys/arena_files.h"
#include "sys/uffd.h"
#include "sys/uffd_abi.h"

#include <sys/mman.h>

namespace cxlkv {

namespace {

uint64_t tier_bits(Where where)
{
	switch (where) {
	case Where::Hot:
		return uint64_t{CXL_KV_TIER_HOT} << CXL_KV_WORD_TIER_SHIFT;
	case Where::Warm:
		return uint64_t{CXL_KV_TIER_WARM} << CXL_KV_WORD_TIER_SHIFT;
	case Where::Cold:
		return uint64_t{CXL_KV_TIER_COLD} << CXL_KV_WORD_TIER_SHIFT;
	case Where::Empty:
	case Where::Lost:
		break;
	}
	return 0;
}

uint64_t with_state(uint64_t word, cxl_kv_state state, bool clean)
{
	word &= ~(CXL_KV_WORD_STATE_MASK | CXL_KV_WORD_CLEAN);
	word |= state | (clean ? CXL_KV_WORD_CLEAN : 0);
	return word + (1ull << CXL_KV_WORD_GENERATION_SHIFT);
}

Result<Mapping> map_whole(int fd, uint64_t bytes, const char *what)
{
	void *addr = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (addr == MAP_FAILED)
		return sys_error(fmt::format("map the {} of an arena ({} bytes)", what, bytes));
	Mapping mapping(addr, bytes);
	if (madvise(addr, bytes, MADV_DONTFORK) || madvise(addr, bytes, MADV_DONTDUMP))
		return sys_error(fmt::format("madvise the {} of an arena", what));
	return mapping;
}

} // namespace

Arena::Arena(const Geometry &arena_geometry, ArenaFiles files, ArenaOptions arena_options)
    : geometry(arena_geometry), options(std::move(arena_options)), files_(std::move(files))
{
}

Result<std::shared_ptr<Arena>> Arena::create(const Geometry &geometry, ArenaFiles files,
					     ArenaOptions options)
{
	if (std::string wrong = check_geometry(geometry); !wrong.empty())
		return cxlkv::error(EINVAL, wrong);
	if (auto good = check_arena_files(geometry, files, options); !good)
		return good.error();

	std::shared_ptr<Arena> arena(new Arena(geometry, std::move(files), std::move(options)));
	if (auto mapped = arena->map_memory(); !mapped)
		return mapped.error();
	if (auto mapped = arena->map_shared(); !mapped)
		return mapped.error();
	arena->where_ = std::make_unique<std::atomic<uint8_t>[]>(geometry.nr_blocks());
	arena->placement_ = std::make_unique<std::atomic<uint8_t>[]>(geometry.nr_slots);
	for (uint32_t slot = 0; slot < geometry.nr_slots; slot++)
		arena->set_placement(slot, Where::Hot);
	return arena;
}

/*
 * The guard: our own mapping is registered on a userfaultfd that answers with
 * SIGBUS, so that a stray touch of a hole fails. Without it the touch would make
 * a zero page, which the client would then read in place of its data.
 */
Result<> Arena::map_memory()
{
	auto mapping = map_whole(files_.memory.get(), geometry.bytes(), "memory");
	if (!mapping)
		return mapping.error();
	memory_ = std::move(*mapping);
	auto device = uffd::open_device();
	if (!device)
		return device.error();
	auto guard = uffd::create(device->get(), UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM);
	if (!guard)
		return guard.error().in("guard of an arena");
	guard_ = std::move(*guard);
	auto addr = reinterpret_cast<uint64_t>(memory_.data());
	if (int err = uffd::register_range(guard_.get(), addr, memory_.size(),
					   UFFDIO_REGISTER_MODE_MISSING))
		return cxlkv::error(err, fmt::format("guard of an arena: {}", strerror(err)));

	/* Pages of a huge folio cannot be punched one block at a time. EINVAL: a kernel without
	 * them. */
	if (madvise(memory_.data(), memory_.size(), MADV_NOHUGEPAGE) && errno != EINVAL)
		return sys_error("madvise the memory of an arena");
	/* Keeps the pages from OS swap for everybody who maps them; the cold tier is ours to
	 * manage. */
	if (mlock2(memory_.data(), memory_.size(), MLOCK_ONFAULT))
		log_warning("arena {}: its memory may be swapped: mlock2: {}; raise LimitMEMLOCK",
			    options.number, strerror(errno));
	return ok();
}

Result<> Arena::map_shared()
{
	auto table = map_whole(files_.table.get(),
			       uint64_t{geometry.nr_blocks()} * sizeof(uint64_t), "table");
	if (!table)
		return table.error();
	table_ = std::move(*table);
	words_ = reinterpret_cast<std::atomic<uint64_t> *>(table_.data());

	if (options.ring == RingKeeper::Module)
		return ok();
	auto ring = map_whole(files_.ring.get(), ring_bytes(options.ring_entries), "ring");
	if (!ring)
		return ring.error();
	ring_ = std::move(*ring);
	return ok();
}

void Arena::publish(uint32_t block, cxl_kv_state state, bool clean)
{
	uint64_t word = words_[block].load(std::memory_order_relaxed);

	while (!words_[block].compare_exchange_weak(word, with_state(word, state, clean),
						    std::memory_order_acq_rel))
		;
}

bool Arena::publish_unleased(uint32_t block, cxl_kv_state state)
{
	uint64_t word = words_[block].load(std::memory_order_relaxed);

	do
		if (word & CXL_KV_WORD_LEASES_MASK)
			return false;
	while (!words_[block].compare_exchange_weak(word, with_state(word, state, false),
						    std::memory_order_acq_rel));
	return true;
}

namespace {

/* One third of the limit later: a lease of a block is 0 to 3 thirds old, then over. */
uint64_t aged(uint64_t word)
{
	const uint64_t leases = (word & CXL_KV_WORD_LEASES_MASK) >> CXL_KV_WORD_LEASES_SHIFT;
	const uint64_t expired = (word & CXL_KV_WORD_EXPIRED_MASK) >> CXL_KV_WORD_EXPIRED_SHIFT;

	if ((word & CXL_KV_WORD_AGE_MASK) != CXL_KV_WORD_AGE_MASK)
		return word + CXL_KV_WORD_AGE_ONE;
	word &= ~(CXL_KV_WORD_LEASES_MASK | CXL_KV_WORD_EXPIRED_MASK | CXL_KV_WORD_AGE_MASK);
	return word | std::min<uint64_t>(expired + leases, CXL_KV_WORD_EXPIRED_MAX)
			      << CXL_KV_WORD_EXPIRED_SHIFT;
}

} // namespace

uint64_t Arena::age_leases()
{
	uint64_t nr_ended = 0;

	for (uint32_t block = 0; block < geometry.nr_blocks(); block++) {
		uint64_t word = words_[block].load(std::memory_order_relaxed);

		while ((word & CXL_KV_WORD_LEASES_MASK) &&
		       !words_[block].compare_exchange_weak(word, aged(word),
							    std::memory_order_acq_rel))
			;
		if ((word & CXL_KV_WORD_AGE_MASK) == CXL_KV_WORD_AGE_MASK)
			nr_ended += (word & CXL_KV_WORD_LEASES_MASK) >> CXL_KV_WORD_LEASES_SHIFT;
	}
	return nr_ended;
}

void Arena::set_where(uint32_t block, Where where)
{
	uint8_t old = where_[block].load(std::memory_order_relaxed);
	while (!where_[block].compare_exchange_weak(
		old, static_cast<uint8_t>(where) | (old & busy_bit), std::memory_order_acq_rel))
		;

	auto counter = [this](Where tier) -> std::atomic<uint64_t> * {
		switch (tier) {
		case Where::Hot:
			return &bytes.hot;
		case Where::Warm:
			return &bytes.warm;
		case Where::Cold:
			return &bytes.cold;
		case Where::Lost:
			return &bytes.lost;
		case Where::Empty:
			break;
		}
		return nullptr;
	};
	if (auto *from = counter(static_cast<Where>(old & ~busy_bit)))
		*from -= geometry.block_bytes;
	if (auto *to = counter(where))
		*to += geometry.block_bytes;

	uint64_t word = words_[block].load(std::memory_order_relaxed);
	while (!words_[block].compare_exchange_weak(
		word, (word & ~CXL_KV_WORD_TIER_MASK) | tier_bits(where),
		std::memory_order_acq_rel))
		;
}

bool Arena::try_busy(uint32_t block)
{
	return !(where_[block].fetch_or(busy_bit, std::memory_order_acq_rel) & busy_bit);
}

void Arena::clear_busy(uint32_t block)
{
	where_[block].fetch_and(static_cast<uint8_t>(~busy_bit), std::memory_order_acq_rel);
}

} // namespace cxlkv
