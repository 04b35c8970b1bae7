/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "peers/memory.h"

#include <algorithm>
#include <cxl_kv.h>
#include <fmt/format.h>
#include <sys/mman.h>

namespace cxlkv::peers {

namespace {

constexpr uint32_t timeout_ms = 60'000;

class Plain : public Memory {
public:
	static Result<std::unique_ptr<Memory>> create(const Shape &shape)
	{
		auto self = std::make_unique<Plain>();
		void *at = mmap(nullptr, shape.bytes(), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return sys_error("memory of a pattern");
		/* Pages of an arena are of 4 KiB, and so are those of everybody here. */
		if (madvise(at, shape.bytes(), MADV_NOHUGEPAGE))
			return sys_error("no huge pages");
		self->base_ = static_cast<std::byte *>(at);
		self->bytes_ = shape.bytes();
		return std::unique_ptr<Memory>(std::move(self));
	}
	~Plain() override
	{
		if (base_)
			munmap(base_, bytes_);
	}
	Result<> make(const Run &) override { return ok(); }

private:
	size_t bytes_ = 0;
};

class Arena : public Memory {
public:
	Arena(const Shape &shape, bool hints) : shape_(shape), hints_(hints) {}
	~Arena() override { cxl_kv_close(kv_); }

	Result<> open()
	{
		cxl_kv_options options{};
		options.size = sizeof(options);
		if (int rc = cxl_kv_open(&options, &kv_); rc)
			return error(-rc, fmt::format("connect to cxl-kvd: {}", strerror(-rc)));
		cxl_kv_geometry geometry{};
		geometry.nr_slots = shape_.nr_slots;
		geometry.nr_layers = 1;
		geometry.nr_kv_heads = Shape::nr_heads;
		geometry.tokens_per_block = Shape::tokens_per_block;
		geometry.elem_bytes = 2;
		geometry.head_dim =
			Shape::block_bytes / Shape::tokens_per_block / geometry.elem_bytes / 2;
		geometry.tokens_per_slot = shape_.blocks_per_head * Shape::tokens_per_block;
		geometry.block_bytes = Shape::block_bytes;
		if (int rc = cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_); rc)
			return error(-rc, fmt::format("create an arena: {}", strerror(-rc)));
		for (uint32_t slot = 0; slot < shape_.nr_slots; slot++)
			if (int rc = cxl_kv_session_open(arena_, slot, nullptr); rc)
				return error(-rc, fmt::format("open session {}: {}", slot,
							      strerror(-rc)));
		base_ = static_cast<std::byte *>(cxl_kv_arena_base(arena_));
		return ok();
	}

	Result<> make(const Run &run) override
	{
		for (uint32_t done = 0; done < run.nr; done += a_call) {
			cxl_kv_range range = range_of(run.first + done);
			range.nr_blocks = std::min(a_call, run.nr - done);
			if (int rc = cxl_kv_make(arena_, &range, 1, timeout_ms); rc)
				return error(-rc, fmt::format("make blocks: {}", strerror(-rc)));
		}
		return ok();
	}

	void begin(const Interval &interval) override
	{
		if (!hints_)
			return;
		cxl_kv_hint hint{};
		hint.kind = CXL_KV_HINT_PHASE;
		hint.slot = interval.slot;
		hint.position = !interval.prefills;
		cxl_kv_send_hint(arena_, &hint);
		for (const Run &run : interval.made) {
			const cxl_kv_range end = range_of(run.first + run.nr - 1);
			position_ = std::max(position_, (end.block + 1) * Shape::tokens_per_block);
		}
	}

	/* The attention mass of a block: its share of what the step read of its head. */
	void step(const Interval &interval, const uint32_t *read, size_t nr) override
	{
		if (!hints_)
			return;
		cxl_kv_hint_position(arena_, interval.slot, position_++);
		std::vector<uint32_t> blocks(read, read + nr);
		std::vector<uint32_t> reads_of_head(size_t{shape_.nr_slots} * Shape::nr_heads);
		for (uint32_t block : blocks)
			reads_of_head[block / shape_.blocks_per_head]++;
		std::sort(blocks.begin(), blocks.end());
		for (size_t i = 0, next; i < blocks.size(); i = next) {
			for (next = i + 1; next < blocks.size() && blocks[next] == blocks[i];
			     next++)
				;
			const cxl_kv_range at = range_of(blocks[i]);
			cxl_kv_hint_score(
				arena_, at.slot, at.head, at.block,
				static_cast<float>(next - i) /
					static_cast<float>(
						reads_of_head[blocks[i] / shape_.blocks_per_head]));
		}
	}

private:
	static constexpr uint32_t a_call = 256;

	[[nodiscard]] cxl_kv_range range_of(uint32_t block) const
	{
		const uint32_t head = block / shape_.blocks_per_head;
		return {head / Shape::nr_heads, head % Shape::nr_heads,
			block % shape_.blocks_per_head, 1};
	}

	const Shape shape_;
	const bool hints_;
	uint32_t position_ = 0;
	cxl_kv *kv_ = nullptr;
	cxl_kv_arena *arena_ = nullptr;
};

} // namespace

Result<std::unique_ptr<Memory>> make_memory(Kind kind, const Shape &shape)
{
	if (kind == Kind::Plain)
		return Plain::create(shape);
	auto arena = std::make_unique<Arena>(shape, kind == Kind::Hints);
	if (auto opened = arena->open(); !opened)
		return opened.error();
	return std::unique_ptr<Memory>(std::move(arena));
}

} // namespace cxlkv::peers
