/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A daemon on a host with one hot node and two warm ones: an engine's parked session sinks. */
#include "lib/control_peer.h"
#include "lib/daemon_fixture.h"

#include <array>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <numaif.h>
#include <sys/prctl.h>
#include <sys/wait.h>

using namespace cxlkv;
using nlohmann::json;

namespace {

/* One session of 32 MiB. */
constexpr cxl_kv_geometry kGeometry{
	.nr_slots = 1,
	.nr_layers = 1,
	.nr_kv_heads = 1,
	.head_dim = 128,
	.elem_bytes = 2,
	.tokens_per_block = 512,
	.tokens_per_slot = 128 * 512,
	.block_bytes = 256 << 10,
};
constexpr uint32_t kBlocks = 128;
constexpr uint64_t kBytes = uint64_t{kBlocks} * kGeometry.block_bytes;

class TieringTest : public DaemonFixture {
protected:
	void begin(std::vector<std::string> more = {})
	{
		std::vector<std::string> settings{
			"HOT__LIMIT=64MiB",          "WARM__LIMIT=128MiB",
			"COLD__SIZE=256MiB",         "SESSION__IDLE_MS=20",
			"SESSION__RESUME_MS=5",      "SESSION__MIN_RESIDENCY_MS=0",
			"SESSION__WARM_MS=40",       "SESSION__COLD_MS=0",
			"POLICY__MIN_RESIDENCY_MS=0"};
		settings.insert(settings.end(), more.begin(), more.end());
		start(kGeometry, settings);
	}
	/* Makes the session's blocks, hot ones as it decodes, marks each, and parks it: it is to
	 * go to warm. */
	void park()
	{
		const cxl_kv_range all{0, 0, 0, kBlocks};
		cxl_kv_hint decode{};
		decode.kind = CXL_KV_HINT_PHASE;
		decode.position = CXL_KV_PHASE_DECODE;
		ASSERT_EQ(cxl_kv_session_open(arena_, 0, nullptr), 0);
		ASSERT_EQ(cxl_kv_send_hint(arena_, &decode), 0);
		ASSERT_TRUE(eventually([&] { return status("/phases/decode") == 1; }));
		ASSERT_EQ(cxl_kv_make(arena_, &all, 1, timeout_ms), 0);
		ASSERT_EQ(cxl_kv_lease(arena_, &all, 1, timeout_ms, nullptr), 0);
		for (uint32_t block = 0; block < kBlocks; block++)
			memset(at(block), static_cast<int>(block + 1), kGeometry.block_bytes);
		ASSERT_EQ(cxl_kv_unlease(arena_, &all, 1), 0);
		ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
	}
	[[nodiscard]] std::byte *at(uint32_t block) const
	{
		return static_cast<std::byte *>(cxl_kv_block(arena_, 0, 0, block));
	}
	/* Bytes of the session on each node, as the kernel says. */
	[[nodiscard]] std::array<uint64_t, 3> bytes_on() const
	{
		const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
		std::array<uint64_t, 3> bytes{};
		for (uint64_t offset = 0; offset < kBytes; offset += page_bytes) {
			void *page = at(0) + offset;
			int node = -1;
			if (!move_pages(0, 1, &page, nullptr, &node, 0) && node >= 0 && node < 3)
				bytes[static_cast<size_t>(node)] += page_bytes;
		}
		return bytes;
	}
	json ask(const json &request)
	{
		return test::ControlPeer(daemon_->socket()).ask(request.dump());
	}
	uint64_t status(const char *pointer)
	{
		return ask({{"op", "status"}}).value(json::json_pointer(pointer), UINT64_MAX);
	}
	void expect_all_warm()
	{
		EXPECT_TRUE(eventually([&] { return status("/tiers/warm/bytes") == kBytes; }))
			<< ask({{"op", "status"}}).dump(1);
		for (const char *way : {"promote", "demote"}) {
			json c = ask({{"op", "status"}})["mover"][way];
			EXPECT_EQ(c["attempted"].get<uint64_t>(),
				  c["moved"].get<uint64_t>() + c["failed"].get<uint64_t>() +
					  c["skipped"].get<uint64_t>());
		}
	}
	void expect_whole()
	{
		for (uint32_t block = 0; block < kBlocks; block++)
			for (uint32_t i = 0; i < kGeometry.block_bytes; i += 4096)
				ASSERT_EQ(at(block)[i], static_cast<std::byte>(block + 1));
	}
};

/* A word in a file of the kernel's, for the time of a test. */
class Setting {
public:
	Setting(const char *file, const char *word) : file_(file)
	{
		std::getline(std::ifstream(file), before_);
		std::ofstream(file) << word << std::flush;
	}
	~Setting() { std::ofstream(file_) << before_ << std::flush; }

private:
	const char *file_;
	std::string before_;
};

TEST_F(TieringTest, MovesAreSpreadOverTheWarmNodesByWeight)
{
	begin({"WARM__WEIGHTS=3,1"});
	park();
	expect_all_warm();
	const auto bytes = bytes_on();
	EXPECT_EQ(bytes[0], 0u);
	EXPECT_NEAR(double(bytes[1]), double(kBytes) * 3 / 4, double(kBytes) / 16);
	EXPECT_NEAR(double(bytes[2]), double(kBytes) * 1 / 4, double(kBytes) / 16);
	expect_whole();
}

/* A quarter of a page in a turn of the policy, whose four turns are less than a block. */
TEST_F(TieringTest, ALimitOfLessThanAPageInATurnStillMovesBlocks)
{
	begin({"MOVER__MAX_MBPS=1", "DAEMON__INTERVAL_MS=1"});
	park();
	EXPECT_TRUE(eventually([&] { return status("/tiers/warm/bytes") >= 1 << 20; }))
		<< ask({{"op", "status"}}).dump(1);
}

TEST_F(TieringTest, NothingMovesWhileItIsNotEnabledAndThenItDoes)
{
	begin({"DAEMON__ENABLED=false", "HOT__LIMIT=40MiB", "DAEMON__INTERVAL_MS=5"});
	park();
	/* Hundreds of turns. */
	const uint64_t now_s = status("/uptime_s");
	ASSERT_TRUE(eventually([&] { return status("/uptime_s") >= now_s + 3; }));
	EXPECT_EQ(status("/mover/demote/attempted"), 0u);
	EXPECT_EQ(status("/mover/promote/attempted"), 0u);
	EXPECT_EQ(status("/spill/spilled"), 0u);
	EXPECT_EQ(bytes_on()[0], kBytes);

	const json answer = ask({{"op", "tune"}, {"set", {{"daemon.enabled", "true"}}}});
	EXPECT_FALSE(answer.contains("error")) << answer.dump();
	expect_all_warm();
	expect_whole();
}

/* What an emulated node's latency is worth is another matter; the rule is latency_gate_test's. */
TEST_F(TieringTest, EachNodesLatencyIsMeasuredAndShown)
{
	begin();
	ASSERT_TRUE(eventually([&] { return status("/mover/latency_gate/measured") >= 1; }));
	const json gate = ask({{"op", "status"}})["mover"]["latency_gate"];
	EXPECT_EQ(gate["on"], true) << gate.dump();
	ASSERT_EQ(gate["nodes"].size(), 3u);
	for (const json &node : gate["nodes"])
		EXPECT_GT(node["ns"].get<double>(), 0) << gate.dump();
	ask({{"op", "tune"}, {"set", {{"mover.latency_gate", "false"}}}});
	EXPECT_EQ(ask({{"op", "status"}})["mover"]["latency_gate"]["on"], false);
}

TEST_F(TieringTest, OthersThatMovePagesAreInTheLogAtTheStartWithWhatToDo)
{
	Setting balancing("/proc/sys/kernel/numa_balancing", "2");
	Setting demotion("/sys/kernel/mm/numa/demotion_enabled", "true");
	pid_t memtierd = fork();
	if (!memtierd) {
		prctl(PR_SET_NAME, "memtierd");
		pause();
		_exit(0);
	}
	begin();
	const std::string log = daemon_->log(),
			  warnings = ask({{"op", "status"}})["warnings"].dump();
	kill(memtierd, SIGKILL);
	waitpid(memtierd, nullptr, 0);
	for (const std::string &text :
	     {std::string("sysctl kernel.numa_balancing=0"),
	      std::string("echo 0 > /sys/kernel/mm/numa/demotion_enabled"),
	      fmt::format("memtierd (pid {}) moves pages too: stop it", memtierd)}) {
		EXPECT_NE(log.find(text), std::string::npos) << log;
		EXPECT_NE(warnings.find(text), std::string::npos) << warnings;
	}
}

} // namespace
