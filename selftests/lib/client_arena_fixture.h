/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An arena of libcxl_kv whose manager the test plays: it sees the files, sets states, answers. */
#pragma once

#include "lib/client_fixture.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/stat.h>

namespace cxlkv {

using Reply = FakeManager::Reply;
using Request = FakeManager::Request;
using nlohmann::json;

inline constexpr cxl_kv_geometry geometry{
	.nr_slots = 2,
	.nr_layers = 2,
	.nr_kv_heads = 2,
	.head_dim = 64,
	.elem_bytes = 2,
	.tokens_per_block = 16,
	.tokens_per_slot = 128,
	.block_bytes = 4096,
};
inline constexpr uint32_t nr_blocks = 2 * 4 * 8;

class ArenaTest : public ClientFixture {
protected:
	/* The manager's view of the registered arena. */
	struct Registered {
		json body;
		std::vector<Fd> files;
		Mapping table, ring;
	};

	void SetUp() override { start(); }
	~ArenaTest() override
	{
		set_script({}); /* it refers to what the test has left */
		cxl_kv_arena_destroy(arena_);
	}

	void start()
	{
		manager_ = std::make_unique<FakeManager>(socket_.path(),
							 [this](Request &r) { return serve(r); });
	}

	/* Gives arenas ever new numbers; all other requests are the test's, or agreed to. */
	Reply serve(Request &request)
	{
		std::lock_guard guard(lock_);

		requests_.push_back(request.body);
		if (request.body["op"] == "register") {
			registered_.push_back(take(request));
			return FakeManager::ok(request, {{"arena", registered_.size()},
							 {"key", "18446744073709551615"}});
		}
		return script_ ? script_(request) : FakeManager::agree(request);
	}

	static Registered take(Request &request)
	{
		Registered result{request.body, std::move(request.files), {}, {}};
		auto map = [&](size_t file) {
			struct stat st {};

			if (result.files.size() <= file || fstat(result.files[file].get(), &st))
				return Mapping{};
			void *at = mmap(nullptr, static_cast<size_t>(st.st_size),
					PROT_READ | PROT_WRITE, MAP_SHARED,
					result.files[file].get(), 0);
			return Mapping{at, static_cast<size_t>(st.st_size)};
		};

		result.table = map(2);
		result.ring = map(3);
		return result;
	}

	/* Throws, which ends the test: without an arena nothing else means anything. */
	void create(uint32_t loss_deadline_ms = 10000, cxl_kv_loss on_loss = CXL_KV_LOSS_WAIT)
	{
		cxl_kv_options with = options();

		with.loss_deadline_ms = loss_deadline_ms;
		with.on_manager_loss = on_loss;
		int rc = open(with);
		if (!rc)
			rc = cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_);
		if (rc)
			throw std::runtime_error(strerror(-rc) + (": " + messages()));
	}

	std::atomic_ref<uint64_t> word(uint32_t block)
	{
		return std::atomic_ref(
			reinterpret_cast<uint64_t *>(registered_.back().table.data())[block]);
	}
	void set_states(uint32_t first, uint32_t nr, cxl_kv_state state)
	{
		for (uint32_t block = first; block < first + nr; block++) {
			uint64_t seen = word(block).load();

			while (!word(block).compare_exchange_weak(
				seen, (seen & ~CXL_KV_WORD_STATE_MASK) | state |
					      7ull << CXL_KV_WORD_GENERATION_SHIFT))
				;
		}
	}
	uint64_t leases(uint32_t block)
	{
		return (word(block).load() & CXL_KV_WORD_LEASES_MASK) >> CXL_KV_WORD_LEASES_SHIFT;
	}
	uint64_t all_leases()
	{
		uint64_t sum = 0;

		for (uint32_t block = 0; block < nr_blocks; block++)
			sum += leases(block);
		return sum;
	}
	cxl_kv_ring *ring()
	{
		return reinterpret_cast<cxl_kv_ring *>(registered_.back().ring.data());
	}
	cxl_kv_hint *ring_entries()
	{
		return reinterpret_cast<cxl_kv_hint *>(registered_.back().ring.data() +
						       CXL_KV_RING_ENTRIES_OFFSET);
	}

	size_t nr_requests()
	{
		std::lock_guard guard(lock_);
		return requests_.size();
	}
	json last_request()
	{
		std::lock_guard guard(lock_);
		return requests_.back();
	}
	void set_script(FakeManager::Script script)
	{
		std::lock_guard guard(lock_);
		script_ = std::move(script);
	}

	std::unique_ptr<FakeManager> manager_;
	cxl_kv_arena *arena_ = nullptr;
	std::mutex lock_;
	FakeManager::Script script_;
	std::vector<json> requests_;
	std::vector<Registered> registered_;
};

inline Reply silence()
{
	return {.text = "", .file = Fd{}};
}

inline Reply hang_up()
{
	return {.text = "", .hang_up = true, .file = Fd{}};
}

} // namespace cxlkv
