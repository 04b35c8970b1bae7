/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* KV in ordinary memory: what a run is compared with. */
#include "engine/kv_memory.h"

namespace cxlkv::engine {

namespace {

class PlainMemory : public KvMemory {
public:
	PlainMemory(const KvShape &shape, uint32_t nr_slots) : shape_(shape), slots_(nr_slots) {}

	Result<> open_slot(uint32_t slot) override
	{
		slots_[slot].assign(shape_.slot_bytes(), std::byte{0});
		return ok();
	}
	Result<> close_slot(uint32_t slot) override
	{
		slots_[slot] = {};
		return ok();
	}
	Result<> lease(uint32_t, uint32_t) override { return ok(); }
	Result<> unlease(uint32_t) override { return ok(); }
	std::byte *address(uint32_t slot) override { return slots_[slot].data(); }
	void report(uint32_t, const Masses &) override {}
	void set_position(uint32_t, uint32_t) override {}
	Result<> park(uint32_t) override { return ok(); }
	Result<> wake(uint32_t) override { return ok(); }
	bool worth_fetching(uint32_t, uint32_t, double) override { return true; }
	[[nodiscard]] const KvStats &stats() const override { return stats_; }

private:
	KvShape shape_;
	std::vector<std::vector<std::byte>> slots_;
	KvStats stats_;
};

} // namespace

std::unique_ptr<KvMemory> make_plain_memory(const KvShape &shape, uint32_t nr_slots)
{
	return std::make_unique<PlainMemory>(shape, nr_slots);
}

} // namespace cxlkv::engine
