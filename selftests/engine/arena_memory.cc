/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* KV in an arena of libcxl_kv: blocks move between tiers whenever they are not leased. */
#include "base/log.h"
#include "engine/kv_memory.h"

#include <algorithm>
#include <chrono>
#include <cxl_kv.h>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>

namespace cxlkv::engine {

namespace {

using Clock = std::chrono::steady_clock;

struct CloseKv {
	void operator()(cxl_kv *kv) const { cxl_kv_close(kv); }
};

/* One conversation; counts are of blocks of each head. */
struct Slot {
	uint32_t made = 0, leased = 0, sealed = 0;
};

std::string explain(int code)
{
	switch (code) {
	case EBUSY:
		return "no room in the hot tier; raise [hot] limit or --deadline-ms";
	case ENOENT:
	case ECONNREFUSED:
		return "no manager answers; is cxl-kvd running, and --socket its socket?";
	case ENOTCONN:
	case ETIMEDOUT:
		return "the manager is gone and no other came in time";
	case EPERM:
	case EACCES:
		return "the manager refused; see its log";
	case EIO:
		return "a block is lost";
	default:
		return strerror(code);
	}
}

Error kv_error(int rc, const std::string &what)
{
	return error(-rc, fmt::format("{}: {}", what, explain(-rc)));
}

class ArenaMemory : public KvMemory {
public:
	ArenaMemory(const KvShape &shape, uint32_t nr_slots, const ArenaSettings &settings)
	    : shape_(shape), slots_(nr_slots), deadline_(settings.deadline_ms),
	      wake_deadline_(settings.wake_deadline_ms)
	{
	}

	Result<> connect(const ArenaSettings &settings, KvType type);
	Result<> create(const cxl_kv_geometry &geometry);

	Result<> open_slot(uint32_t slot) override;
	Result<> close_slot(uint32_t slot) override;
	Result<> lease(uint32_t slot, uint32_t tokens) override;
	Result<> unlease(uint32_t slot) override;
	std::byte *address(uint32_t slot) override
	{
		return static_cast<std::byte *>(cxl_kv_block(arena_, slot, 0, 0));
	}
	void report(uint32_t slot, const Masses &masses) override;
	void set_position(uint32_t slot, uint32_t tokens) override;
	Result<> park(uint32_t slot) override;
	Result<> wake(uint32_t slot) override;
	bool worth_fetching(uint32_t slot, uint32_t tokens, double prefill_tokens_per_s) override;
	[[nodiscard]] const KvStats &stats() const override { return stats_; }

private:
	std::vector<cxl_kv_range> ranges(uint32_t slot, uint32_t first, uint32_t nr) const;
	template <typename Call> int until_room(const char *what, uint32_t slot, Call call);
	template <typename Call> int until_admitted(std::chrono::milliseconds deadline, Call call);
	bool hinted(int rc);

	KvShape shape_;
	std::vector<Slot> slots_;
	std::chrono::milliseconds deadline_, wake_deadline_;
	std::unique_ptr<cxl_kv, CloseKv> kv_; /* closing it destroys the arena */
	cxl_kv_arena *arena_ = nullptr;
	KvStats stats_;
};

Result<> ArenaMemory::connect(const ArenaSettings &settings, KvType type)
{
	cxl_kv_options options{};
	cxl_kv *kv = nullptr;

	options.size = sizeof(options);
	options.name = "kv-engine";
	options.elem_type = type == KvType::F16 ? CXL_KV_ELEM_FP16 : CXL_KV_ELEM_UNKNOWN;
	options.cold_format = static_cast<uint16_t>(settings.cold_format);
	options.socket_path = settings.socket.empty() ? nullptr : settings.socket.c_str();
	if (int rc = cxl_kv_open(&options, &kv); rc < 0)
		return kv_error(rc, "connect to the manager");
	kv_.reset(kv);
	return ok();
}

Result<> ArenaMemory::create(const cxl_kv_geometry &geometry)
{
	if (int rc = cxl_kv_arena_create(kv_.get(), &geometry, nullptr, &arena_); rc < 0)
		return kv_error(rc, "create the arena");
	return ok();
}

/* The same blocks of every head. */
std::vector<cxl_kv_range> ArenaMemory::ranges(uint32_t slot, uint32_t first, uint32_t nr) const
{
	std::vector<cxl_kv_range> all;

	for (uint32_t head = 0; head < shape_.heads; head++)
		all.push_back({slot, head, first, nr});
	return all;
}

/* Calls with slices of the deadline, so that a long wait is seen in the log. */
template <typename Call> int ArenaMemory::until_room(const char *what, uint32_t slot, Call call)
{
	constexpr std::chrono::milliseconds slice(2000);
	const auto end = Clock::now() + deadline_;

	for (;;) {
		auto left =
			std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
		left = std::max(left, std::chrono::milliseconds(1));
		int rc = call(static_cast<uint32_t>(std::min(left, slice).count()));
		if (rc != -EBUSY || Clock::now() >= end)
			return rc;
		log_warning("{} of conversation {}: no room yet, trying for {} ms more", what, slot,
			    left.count());
	}
}

/* Asks again when the manager said to, while the deadline lasts; the call gets what is left. */
template <typename Call>
int ArenaMemory::until_admitted(std::chrono::milliseconds deadline, Call call)
{
	const auto end = Clock::now() + deadline;

	for (;;) {
		const auto left =
			std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
		uint32_t retry_ms = 0;
		int rc = call(static_cast<uint32_t>(std::max<int64_t>(left.count(), 1)), &retry_ms);
		if (rc != -EBUSY || !retry_ms || Clock::now() >= end)
			return rc;
		std::this_thread::sleep_for(std::chrono::milliseconds(retry_ms));
	}
}

Result<> ArenaMemory::open_slot(uint32_t slot)
{
	int rc = until_admitted(deadline_, [&](uint32_t, uint32_t *retry_ms) {
		return cxl_kv_session_open(arena_, slot, retry_ms);
	});
	if (rc < 0)
		return kv_error(rc, fmt::format("open session {}", slot));
	slots_[slot] = {};
	return ok();
}

Result<> ArenaMemory::close_slot(uint32_t slot)
{
	if (int rc = cxl_kv_session_close(arena_, slot); rc < 0)
		return kv_error(rc, fmt::format("close session {}", slot));
	slots_[slot] = {};
	return ok();
}

Result<> ArenaMemory::lease(uint32_t slot, uint32_t tokens)
{
	Slot &s = slots_[slot];
	const uint32_t nr = shape_.blocks_for(tokens);

	if (nr > s.made) {
		auto fresh = ranges(slot, s.made, nr - s.made);
		int rc = until_room("make", slot, [&](uint32_t ms) {
			return cxl_kv_make(arena_, fresh.data(), fresh.size(), ms);
		});
		if (rc < 0)
			return kv_error(rc, fmt::format("make blocks of conversation {}", slot));
		s.made = nr;
	}
	auto wanted = ranges(slot, 0, nr);
	uint64_t hits = 0;
	int rc = until_room("lease", slot, [&](uint32_t ms) {
		return cxl_kv_lease(arena_, wanted.data(), wanted.size(), ms, &hits);
	});
	if (rc < 0)
		return kv_error(rc, fmt::format("lease {} blocks of conversation {}",
						nr * shape_.heads, slot));
	s.leased = nr;
	stats_.nr_leases++;
	stats_.nr_leased_blocks += uint64_t{nr} * shape_.heads;
	stats_.nr_hits += hits;
	return ok();
}

Result<> ArenaMemory::unlease(uint32_t slot)
{
	auto leased = ranges(slot, 0, std::exchange(slots_[slot].leased, 0));

	if (int rc = cxl_kv_unlease(arena_, leased.data(), leased.size()); rc < 0)
		return kv_error(rc, fmt::format("unlease blocks of conversation {}", slot));
	return ok();
}

/* A hint that finds the ring full is lost, not waited for. */
bool ArenaMemory::hinted(int rc)
{
	stats_.nr_hints_dropped += rc == -ENOSPC;
	return rc == 0;
}

void ArenaMemory::report(uint32_t slot, const Masses &masses)
{
	for (uint32_t head = 0; head < shape_.heads; head++)
		for (uint32_t b = 0; b < masses.nr_blocks; b++)
			/* Rounding may lift a sum above one. */
			hinted(cxl_kv_hint_score(arena_, slot, head, b,
						 std::min(masses.head(head)[b], 1.0f)));
}

void ArenaMemory::set_position(uint32_t slot, uint32_t tokens)
{
	Slot &s = slots_[slot];
	const uint32_t full = tokens / shape_.tokens_per_block;

	hinted(cxl_kv_hint_position(arena_, slot, tokens));
	if (full <= s.sealed)
		return;
	bool placed = true;
	for (const cxl_kv_range &range : ranges(slot, s.sealed, full - s.sealed))
		placed = hinted(cxl_kv_seal(arena_, &range)) && placed;
	if (placed)
		s.sealed = full;
}

Result<> ArenaMemory::park(uint32_t slot)
{
	if (int rc = cxl_kv_session_park(arena_, slot); rc < 0)
		return kv_error(rc, fmt::format("park session {}", slot));
	return ok();
}

Result<> ArenaMemory::wake(uint32_t slot)
{
	int rc = until_admitted(wake_deadline_, [&](uint32_t left_ms, uint32_t *retry_ms) {
		return cxl_kv_session_wake(arena_, slot, left_ms, retry_ms);
	});
	if (rc < 0)
		return kv_error(rc, fmt::format("wake session {}", slot));
	return ok();
}

/* Who cannot be asked is believed to be quick. */
bool ArenaMemory::worth_fetching(uint32_t slot, uint32_t tokens, double prefill_tokens_per_s)
{
	cxl_kv_decide_args args{};
	cxl_kv_decision decision{};

	args.size = sizeof(args);
	args.flags = CXL_KV_DECIDE_LATENCY;
	args.slot = slot;
	args.tokens = tokens;
	args.prefill_tokens_per_s = prefill_tokens_per_s;
	args.return_probability = 1;
	return cxl_kv_decide(arena_, &args, &decision) < 0 || decision.verdict == CXL_KV_FETCH;
}

} // namespace

cxl_kv_geometry arena_geometry(const KvShape &shape, uint32_t nr_slots)
{
	cxl_kv_geometry geometry{};

	geometry.nr_slots = nr_slots;
	geometry.nr_layers = shape.layers;
	geometry.nr_kv_heads = shape.heads / shape.layers;
	geometry.head_dim = shape.head_dim;
	geometry.elem_bytes = static_cast<uint32_t>(elem_bytes(shape.type));
	geometry.tokens_per_block = shape.tokens_per_block;
	geometry.tokens_per_slot = shape.max_tokens;
	geometry.block_bytes = shape.block_bytes();
	return geometry;
}

Result<std::unique_ptr<KvMemory>> make_arena_memory(const KvShape &shape, uint32_t nr_slots,
						    const ArenaSettings &settings)
{
	const auto page = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
	const uint32_t bytes = shape.block_bytes();
	if (bytes < page || (bytes & (bytes - 1)))
		return error(
			EINVAL,
			fmt::format("blocks of {} tokens have {} bytes; an arena needs a power of "
				    "two of at least {}: change --tokens-per-block",
				    shape.tokens_per_block, bytes, page));

	auto memory = std::make_unique<ArenaMemory>(shape, nr_slots, settings);
	if (Result<> r = memory->connect(settings, shape.type); !r)
		return r.error();
	if (Result<> r = memory->create(arena_geometry(shape, nr_slots)); !r)
		return r.error();
	return std::unique_ptr<KvMemory>(std::move(memory));
}

} // namespace cxlkv::engine
