// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * 1,000 conversations of three tenants with quotas, for CXL_KV_SOAK_SECONDS (20):
 * nobody is over his quota, no lease is left, nobody active loses a block, and
 * every byte is what was written. Prints what it did.
 */
#include "cli/control_client.h"
#include "lib/client_fixture.h"
#include "lib/daemon_process.h"

#include <nlohmann/json.hpp>
#include <random>

using namespace cxlkv;
using nlohmann::json;

namespace {

constexpr uint32_t nr_heads = 2, blocks_per_head = 4, block_bytes = 4096;
constexpr uint32_t nr_slots = 334, session_bytes = nr_heads * blocks_per_head * block_bytes;
constexpr uint64_t extent_bytes = 64 << 10;

/* One client: its conversations take turns at random. */
class Engine {
public:
	Engine(const cxl_kv_options &options, uint64_t seed) : random_(seed)
	{
		constexpr cxl_kv_geometry geometry{
			.nr_slots = nr_slots,
			.nr_layers = 2,
			.nr_kv_heads = 1,
			.head_dim = 64,
			.elem_bytes = 2,
			.tokens_per_block = 16,
			.tokens_per_slot = 64,
			.block_bytes = block_bytes,
		};
		EXPECT_EQ(cxl_kv_open(&options, &kv_), 0);
		EXPECT_EQ(cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_), 0);
	}
	~Engine() { cxl_kv_close(kv_); }

	void run(const std::atomic<bool> &stop)
	{
		while (!stop && !nr_failed && !nr_wrong) {
			turn(static_cast<uint32_t>(random_() % nr_slots));
			nr_turns++;
		}
	}

	[[nodiscard]] uint64_t nr_leases() const
	{
		uint64_t nr = 0;
		for (uint32_t i = 0; i < nr_slots * nr_heads * blocks_per_head; i++)
			nr += (cxl_kv_block_word(arena_, i / 8, i / 4 % 2, i % 4) &
			       CXL_KV_WORD_LEASES_MASK) != 0;
		return nr;
	}

	std::atomic<uint64_t> nr_turns{0}, nr_recomputed{0}, nr_busy{0}, nr_failed{0}, nr_wrong{0};

private:
	void turn(uint32_t slot)
	{
		int rc = rounds_[slot] ? resume(slot) : begin(slot);
		if (rc == -EBUSY) {
			nr_busy++;
			return;
		}
		if (rc == -EIO || rc == -ENODATA) { /* given up: compute it again */
			nr_recomputed++;
			rc = cxl_kv_session_close(arena_, slot);
			rounds_[slot] = 0;
			if (!rc)
				rc = begin(slot);
			if (rc == -EBUSY)
				return;
		}
		if (rc) {
			ADD_FAILURE() << "slot " << slot << ": " << strerror(-rc);
			nr_failed++;
		}
	}

	int begin(uint32_t slot)
	{
		const auto ranges = all(slot);
		uint32_t retry_ms = 0;
		int rc = cxl_kv_session_open(arena_, slot, &retry_ms);
		if (rc)
			return rc;
		rc = cxl_kv_make(arena_, ranges.data(), ranges.size(), 5000);
		if (!rc)
			rc = write(slot);
		if (!rc)
			return cxl_kv_session_park(arena_, slot);
		int closed = cxl_kv_session_close(arena_, slot);
		return closed ? closed : rc;
	}

	int resume(uint32_t slot)
	{
		uint32_t retry_ms = 0;
		int rc = cxl_kv_session_wake(arena_, slot, 5000, &retry_ms);
		if (!rc)
			rc = write(slot);
		int parked = cxl_kv_session_park(arena_, slot);
		return rc ? rc : parked;
	}

	/* Checks what the last turn left, and leaves something else. */
	int write(uint32_t slot)
	{
		const auto ranges = all(slot);
		int rc = cxl_kv_lease(arena_, ranges.data(), ranges.size(), 5000, nullptr);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < nr_heads * blocks_per_head; i++) {
			auto *words =
				static_cast<uint64_t *>(cxl_kv_block(arena_, slot, i / 4, i % 4));
			for (uint32_t w = 0; w < block_bytes / 8; w++) {
				if (rounds_[slot])
					nr_wrong += words[w] != value(slot, i, w);
				else
					nr_wrong += words[w] != 0;
			}
		}
		rounds_[slot]++;
		for (uint32_t i = 0; i < nr_heads * blocks_per_head; i++) {
			auto *words =
				static_cast<uint64_t *>(cxl_kv_block(arena_, slot, i / 4, i % 4));
			for (uint32_t w = 0; w < block_bytes / 8; w++)
				words[w] = value(slot, i, w);
		}
		return cxl_kv_unlease(arena_, ranges.data(), ranges.size());
	}

	[[nodiscard]] uint64_t value(uint32_t slot, uint32_t block, uint32_t word) const
	{
		return (rounds_[slot] << 40) + uint64_t{slot} * 1000003 + block * 4099 + word + 1;
	}

	static std::array<cxl_kv_range, nr_heads> all(uint32_t slot)
	{
		return {{{slot, 0, 0, blocks_per_head}, {slot, 1, 0, blocks_per_head}}};
	}

	std::mt19937_64 random_;
	cxl_kv *kv_ = nullptr;
	cxl_kv_arena *arena_ = nullptr;
	std::vector<uint64_t> rounds_ = std::vector<uint64_t>(nr_slots);
};

class SoakTest : public ClientFixture {
protected:
	/* Bytes that any tenant has above his quota of a tier. */
	static uint64_t most_over(const json &status)
	{
		uint64_t most = 0;
		for (const json &tenant : status["tenants"])
			for (const char *tier : {"hot", "cold"}) {
				if (!tenant[tier]["quota_bytes"].is_number())
					continue;
				uint64_t has = number_at(tenant[tier], "/bytes"),
					 may = number_at(tenant[tier], "/quota_bytes");
				most = std::max(most, has > may ? has - may : 0);
			}
		return most;
	}
};

} // namespace

TEST_F(SoakTest, ThousandConversationsOfThreeTenants)
{
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	const char *wanted = getenv("CXL_KV_SOAK_SECONDS");
	const auto seconds = std::chrono::seconds(wanted ? atoi(wanted) : 20);
	/* 10.4 MiB of KV each: red has room for it in both tiers, green and blue have not. */
	DaemonProcess daemon({"HOT__LIMIT=8MiB", "COLD__SIZE=128MiB", "DAEMON__INTERVAL_MS=5",
			      "POLICY__MAX_EXTENT_BYTES=" + std::to_string(extent_bytes),
			      "TENANT_RED__HOT=3MiB", "TENANT_GREEN__HOT=2MiB",
			      "TENANT_GREEN__COLD=6MiB", "TENANT_BLUE__HOT=1MiB",
			      "TENANT_BLUE__COLD=1MiB"});
	daemon.start();
	setenv("CXL_KV_SOCKET", daemon.socket().c_str(), 1);

	std::vector<std::unique_ptr<Engine>> engines;
	for (const char *tenant : {"red", "green", "blue"}) {
		cxl_kv_options with = options();
		with.socket_path = daemon.socket().c_str();
		with.tenant = tenant;
		engines.push_back(std::make_unique<Engine>(with, engines.size() + 1));
	}
	std::atomic<bool> stop{false};
	std::vector<std::thread> threads;
	for (auto &engine : engines)
		threads.emplace_back([&] { engine->run(stop); });
	json now;
	uint64_t over = 0, nr_looks = 0;
	for (auto end = std::chrono::steady_clock::now() + seconds;
	     std::chrono::steady_clock::now() < end; nr_looks++) {
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
		if (ask_daemon({{"op", "status"}}, now))
			break;
		over = std::max(over, most_over(now));
	}
	stop = true;
	for (std::thread &thread : threads)
		thread.join();
	EXPECT_EQ(ask_daemon({{"op", "status"}}, now), 0);

	EXPECT_LE(over, extent_bytes) << "above a quota";
	EXPECT_EQ(number_at(now, "/sessions/active_evicted_blocks"), 0u);
	/* One may be half-way. */
	EXPECT_TRUE(eventually([&] {
		return !ask_daemon({{"op", "status"}}, now) &&
		       number_at(now, "/lost_blocks") * block_bytes % session_bytes == 0;
	})) << "sessions are given up as a whole";
	uint64_t nr_turns = 0, nr_recomputed = 0, nr_busy = 0;
	for (auto &engine : engines) {
		EXPECT_EQ(engine->nr_leases(), 0u) << "leaked";
		EXPECT_EQ(engine->nr_wrong, 0u);
		EXPECT_GT(engine->nr_turns, nr_slots / 2);
		nr_turns += engine->nr_turns;
		nr_recomputed += engine->nr_recomputed;
		nr_busy += engine->nr_busy;
	}
	EXPECT_GT(nr_recomputed, 0u) << "blue's quotas are too small for all of his";
	std::cout << "# " << nr_turns << " turns, " << nr_recomputed << " recomputed, " << nr_busy
		  << " busy; most above a quota " << over << " bytes in " << nr_looks
		  << " looks; wake " << now["wake"].dump() << "\n# sessions "
		  << now["sessions"].dump() << "\n# thrash: evict to reuse "
		  << now["times"]["reuse_gap"].dump() << "\n";
	if (HasFailure())
		std::cout << "# " << messages() << daemon.log();
}
