// SPDX-License-Identifier: LGPL-2.1-or-later
/* A lossy cold format end to end: a real cxl-kvd, libcxl_kv and cxl-kv list. */
#include "lib/client_fixture.h"
#include "lib/daemon_process.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

using namespace cxlkv;

namespace {

/* 8 MiB of BF16 in 256 blocks. */
constexpr cxl_kv_geometry geometry{
	.nr_slots = 4,
	.nr_layers = 4,
	.nr_kv_heads = 2,
	.head_dim = 64,
	.elem_bytes = 2,
	.tokens_per_block = 128,
	.tokens_per_slot = 1024,
	.block_bytes = 32 << 10,
};
constexpr uint32_t nr_heads = 8, blocks_per_head = 8;
constexpr size_t block_elements = (32 << 10) / 2;
constexpr uint32_t timeout_ms = 20000;

/* BF16 of a number between 1 and 3, another in each place. */
uint16_t element(uint32_t block, size_t i)
{
	float value = 2 + std::sin(static_cast<float>(block * 131 + i));
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return static_cast<uint16_t>(bits >> 16);
}

double number(uint16_t bf16)
{
	uint32_t bits = uint32_t{bf16} << 16;
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

class ColdFormatDaemon : public ClientFixture {
protected:
	void SetUp() override
	{
		if (geteuid() != 0)
			GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	}

	void TearDown() override
	{
		cxl_kv_close(std::exchange(kv_, nullptr));
		if (HasFailure() && daemon_)
			std::cout << "# " << messages() << daemon_->log();
	}

	/* Writes all blocks through a daemon that has memory for a quarter of them. */
	void spill(const char *format)
	{
		std::vector<std::string> settings{"HOT__LIMIT=2MiB", "COLD__SIZE=64MiB",
						  "DAEMON__INTERVAL_MS=5"};
		if (format)
			settings.push_back(std::string("COLD__FORMAT=") + format);
		daemon_ = std::make_unique<DaemonProcess>(settings);
		daemon_->start();
		cxl_kv_options with = options();
		with.socket_path = daemon_->socket().c_str();
		with.elem_type = CXL_KV_ELEM_BF16;
		ASSERT_EQ(open(with), 0) << messages();
		ASSERT_EQ(cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_), 0) << messages();
		for (uint32_t slot = 0; slot < geometry.nr_slots; slot++) {
			ASSERT_EQ(cxl_kv_session_open(arena_, slot, nullptr), 0) << messages();
			for (uint32_t head = 0; head < nr_heads; head++)
				write({slot, head, 0, blocks_per_head});
			ASSERT_EQ(cxl_kv_session_park(arena_, slot), 0);
		}
	}
	void write(const cxl_kv_range &range)
	{
		ASSERT_EQ(cxl_kv_make(arena_, &range, 1, timeout_ms), 0);
		ASSERT_EQ(cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr), 0);
		each_element(range, [](uint16_t &at, uint16_t want) { at = want; });
		ASSERT_EQ(cxl_kv_unlease(arena_, &range, 1), 0);
		ASSERT_EQ(cxl_kv_seal(arena_, &range), 0);
	}
	template <class F> void each_element(const cxl_kv_range &range, F work)
	{
		for (uint32_t block = 0; block < range.nr_blocks; block++) {
			auto *at = static_cast<uint16_t *>(
				cxl_kv_block(arena_, range.slot, range.head, block));
			uint32_t name = (range.slot * nr_heads + range.head) * 8 + block;
			for (size_t i = 0; i < block_elements; i++)
				work(at[i], element(name, i));
		}
	}
	/* Reads all back; energy of the error by that of the values. */
	double nmse()
	{
		double signal = 0, noise = 0;
		for (uint32_t slot = 0; slot < geometry.nr_slots; slot++) {
			for (uint32_t head = 0; head < nr_heads; head++) {
				const cxl_kv_range range{slot, head, 0, blocks_per_head};
				if (cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr)) {
					ADD_FAILURE() << "did not come back: " << messages();
					return NAN;
				}
				each_element(range, [&](uint16_t got, uint16_t want) {
					double x = number(want), error = number(got) - x;
					signal += x * x;
					noise += error * error;
				});
				EXPECT_EQ(cxl_kv_unlease(arena_, &range, 1), 0);
			}
		}
		return noise / signal;
	}
	[[nodiscard]] std::string list(const char *option) const
	{
		auto program =
			std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() /
			"bin/cxl-kv";
		std::string command = "CXL_KV_SOCKET=" + daemon_->socket() + " " +
				      program.string() + " list " + option;
		std::unique_ptr<FILE, int (*)(FILE *)> out{popen(command.c_str(), "r"), pclose};
		std::string text;
		for (int c; (c = fgetc(out.get())) != EOF;)
			text += static_cast<char>(c);
		return text;
	}
	[[nodiscard]] nlohmann::json format() const
	{
		return nlohmann::json::parse(list("-j")).at("arenas").at(0).at("format");
	}

	std::unique_ptr<DaemonProcess> daemon_;
	cxl_kv_arena *arena_ = nullptr;
};

} // namespace

TEST_F(ColdFormatDaemon, Int8GoesToTheStoreAndBackAndTheListSaysWhatItCost)
{
	spill("int8");
	auto shown = format();
	EXPECT_EQ(shown.at("name"), "int8");
	EXPECT_LT(shown.at("block_bytes"), geometry.block_bytes);
	EXPECT_GE(shown.at("encoded_blocks"), 150u) << "256 blocks, room for 64";
	EXPECT_GT(shown.at("cosine"), 0.9999);
	EXPECT_NE(list("").find("int8, NMSE"), std::string::npos) << list("");
	double error = nmse();
	EXPECT_GT(error, 0);
	EXPECT_LE(error, 1e-4);
	EXPECT_GT(shown.at("nmse"), 0);
	EXPECT_LE(shown.at("nmse"), 1e-4);
	EXPECT_GE(shown.at("worst_nmse"), shown.at("nmse"));
}

TEST_F(ColdFormatDaemon, ByDefaultBytesComeBackAsTheyWere)
{
	spill(nullptr);
	EXPECT_EQ(format().at("name"), "raw");
	EXPECT_EQ(format().at("encoded_blocks"), 0);
	EXPECT_EQ(nmse(), 0);
	EXPECT_EQ(list("").find("NMSE"), std::string::npos);
}
