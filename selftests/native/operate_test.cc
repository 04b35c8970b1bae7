/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What an operator does from the command line to a daemon that serves an engine: drain, pin. */
#include "cli/commands.h"
#include "cli/control_client.h"
#include "lib/daemon_fixture.h"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

using namespace cxlkv;

namespace {

/* Two sessions of 1 MiB: 2 heads, 64 blocks each. */
constexpr cxl_kv_geometry kGeometry{
	.nr_slots = 2,
	.nr_layers = 1,
	.nr_kv_heads = 2,
	.head_dim = 32,
	.elem_bytes = 2,
	.tokens_per_block = 64,
	.tokens_per_slot = 4096,
	.block_bytes = 8 << 10,
};
constexpr uint32_t kHeads = 2, kBlocks = 64;

class OperateTest : public DaemonFixture {
protected:
	void SetUp() override { start(kGeometry, {"HOT__LIMIT=1500kB", "COLD__SIZE=32MiB"}); }

	static uint64_t status(const char *pointer)
	{
		auto got = ask_daemon({{"op", "status"}});
		return got ? number_at(*got, pointer) : UINT64_MAX;
	}

	/* Exit status of a command; what it printed is kept. */
	int run(int (*command)(int, char **), std::vector<std::string> words)
	{
		std::vector<char *> argv;
		for (std::string &word : words)
			argv.push_back(word.data());
		argv.push_back(nullptr);
		testing::internal::CaptureStdout();
		testing::internal::CaptureStderr();
		int exit = command(static_cast<int>(words.size()), argv.data());
		fflush(nullptr);
		said_ = testing::internal::GetCapturedStdout() +
			testing::internal::GetCapturedStderr();
		return exit;
	}

	/* Makes a session's blocks and marks each with its number. */
	void fill(uint32_t slot)
	{
		ASSERT_EQ(cxl_kv_session_open(arena_, slot, nullptr), 0);
		for (uint32_t head = 0; head < kHeads; head++)
			for (uint32_t block = 0; block < kBlocks; block++) {
				cxl_kv_range range{slot, head, block, 1};
				ASSERT_EQ(cxl_kv_make(arena_, &range, 1, timeout_ms), 0);
				ASSERT_EQ(cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr), 0);
				memset(cxl_kv_block(arena_, slot, head, block),
				       mark(slot, head, block), kGeometry.block_bytes);
				ASSERT_EQ(cxl_kv_unlease(arena_, &range, 1), 0);
			}
	}
	static int mark(uint32_t slot, uint32_t head, uint32_t block)
	{
		return static_cast<int>((slot * 97 + head * 31 + block) % 251 + 1);
	}

	std::string said_;
};

TEST_F(OperateTest, ADrainedColdTierIsEmptyItsBytesAreInMemoryAndItStaysEmpty)
{
	fill(0);
	ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
	fill(1);
	ASSERT_TRUE(eventually([] { return status("/tiers/cold/bytes") >= 512 << 10; }));
	EXPECT_EQ(run(cmd_drain, {"drain", "cold", "--patience", "0.5"}), kExitFailure)
		<< "two sessions do not fit into the memory of one and a half";
	EXPECT_NE(said_.find("stay"), std::string::npos) << said_;

	ASSERT_EQ(cxl_kv_session_close(arena_, 1), 0);
	ASSERT_EQ(run(cmd_drain, {"drain", "cold"}), kExitOk) << said_;
	EXPECT_EQ(status("/tiers/cold/bytes"), 0u);
	for (uint32_t head = 0; head < kHeads; head++)
		for (uint32_t block = 0; block < kBlocks; block++) {
			auto *at =
				static_cast<unsigned char *>(cxl_kv_block(arena_, 0, head, block));
			ASSERT_EQ(at[0], mark(0, head, block));
			ASSERT_EQ(memcmp(at, at + 1, kGeometry.block_bytes - 1), 0);
		}
	/* More than memory holds is refused now, where it went to cold before. */
	ASSERT_EQ(cxl_kv_session_open(arena_, 1, nullptr), 0);
	cxl_kv_range all{1, 0, 0, kBlocks};
	EXPECT_EQ(cxl_kv_make(arena_, &all, 1, 100), -EBUSY);
	EXPECT_EQ(status("/tiers/cold/bytes"), 0u);

	ASSERT_EQ(run(cmd_drain, {"drain", "cold", "--undo"}), kExitOk) << said_;
	EXPECT_EQ(cxl_kv_make(arena_, &all, 1, timeout_ms), 0);
	EXPECT_EQ(run(cmd_drain, {"drain", "hot"}), kExitUsage);
}

TEST_F(OperateTest, APinnedSessionStaysWhileAnOlderOneWouldLeave)
{
	fill(0);
	std::string arena = std::to_string(status("/arenas"));
	ASSERT_EQ(run(cmd_pin, {"pin", arena, "0"}), kExitOk) << said_;
	EXPECT_EQ(said_, "128 blocks have priority 100\n");
	fill(1);
	ASSERT_TRUE(eventually([] { return status("/tiers/cold/bytes") >= 256 << 10; }));
	uint32_t cold[2] = {};
	for (uint32_t slot = 0; slot < 2; slot++)
		for (uint32_t i = 0; i < kHeads * kBlocks; i++)
			cold[slot] += (cxl_kv_block_word(arena_, slot, i / kBlocks, i % kBlocks) &
				       CXL_KV_WORD_STATE_MASK) == CXL_KV_COLD;
	EXPECT_LT(cold[0], cold[1]) << "the pinned session is the older one";

	EXPECT_EQ(run(cmd_pin, {"pin", "99", "0"}), kExitFailure);
	EXPECT_NE(said_.find("no such arena"), std::string::npos) << said_;
	EXPECT_EQ(run(cmd_pin, {"pin", arena, "2"}), kExitFailure);
	EXPECT_NE(said_.find("slot has to be below 2"), std::string::npos) << said_;
	EXPECT_EQ(run(cmd_pin, {"pin", arena, "0", "--block", "60", "--blocks", "5"}),
		  kExitFailure);
	EXPECT_EQ(run(cmd_pin, {"pin", arena, "x"}), kExitUsage);
	EXPECT_EQ(run(cmd_pin, {"pin", arena, "0", "--head", "-1"}), kExitUsage);
}

TEST_F(OperateTest, SettingsChangeAllOrNone)
{
	auto value = [](const std::string &key) -> std::string {
		auto got = ask_daemon({{"op", "tune"}});
		if (got)
			for (const auto &known : (*got)["keys"])
				if (text_at(known, "/key") == key)
					return text_at(known, "/value");
		return "not there";
	};
	ASSERT_EQ(run(cmd_tune, {"tune", "mover.max_MBps=123", "policy.preset=paper"}), kExitOk)
		<< said_;
	EXPECT_NE(said_.find("mover.max_MBps is 123 now"), std::string::npos) << said_;
	EXPECT_EQ(value("mover.max_MBps"), "123");
	EXPECT_EQ(value("policy.preset"), "paper");
	EXPECT_EQ(run(cmd_tune, {"tune", "mover.max_MBps=7", "policy.alpha=2"}), kExitFailure);
	EXPECT_NE(said_.find("policy.alpha"), std::string::npos) << said_;
	EXPECT_EQ(run(cmd_tune, {"tune", "mover.max_MBps=7", "cold.queue_depth=8"}), kExitFailure);
	EXPECT_NE(said_.find("restart"), std::string::npos) << said_;
	EXPECT_EQ(run(cmd_tune, {"tune", "hot.low_permil=990"}), kExitFailure) << "above high";
	EXPECT_EQ(run(cmd_tune, {"tune", "nonsense=7"}), kExitFailure);
	EXPECT_EQ(run(cmd_tune, {"tune", "nonsense=" + std::string(70000, '7')}), kExitFailure)
		<< "it is not that there is no daemon";
	EXPECT_EQ(run(cmd_tune, {"tune", "policy.alpha=0.5\nmover.max_MBps=7"}), kExitFailure)
		<< "two lines are no value";
	EXPECT_EQ(run(cmd_tune, {"tune", "tenant.default.hot=1GiB"}), kExitFailure);
	EXPECT_NE(said_.find("tenant.default.hot takes a restart"), std::string::npos) << said_;
	EXPECT_EQ(run(cmd_tune, {"tune", "nonsense"}), kExitUsage);
	EXPECT_EQ(value("mover.max_MBps"), "123");
	ASSERT_EQ(run(cmd_tune, {"tune"}), kExitOk);
	EXPECT_NE(said_.find("* mover.max_MBps"), std::string::npos) << said_;
}

TEST_F(OperateTest, ATierThatIsNotThereIsNotDrained)
{
	EXPECT_EQ(run(cmd_drain, {"drain", "warm"}), kExitFailure);
	EXPECT_NE(said_.find("no warm tier"), std::string::npos) << said_;
}

/* Whoever may connect is no operator yet. */
TEST_F(OperateTest, OthersAreRefused)
{
	std::filesystem::permissions(daemon_->socket(), std::filesystem::perms(0666));
	std::filesystem::permissions(std::filesystem::path(daemon_->socket()).parent_path(),
				     std::filesystem::perms(0755));
	pid_t child = fork();
	if (!child) {
		if (setreuid(65534, 65534))
			_exit(99);
		auto client = ControlClient::connect();
		if (!client)
			_exit(98);
		bool refused = true;
		for (const nlohmann::json &request :
		     {nlohmann::json{{"op", "drain"}, {"tier", "cold"}, {"on", true}},
		      nlohmann::json{{"op", "pin"}, {"arena", 1}, {"slot", 0}, {"priority", 0}},
		      nlohmann::json{{"op", "tune"}, {"set", {{"mover.max_MBps", "1"}}}}}) {
			auto answer = client->call(request);
			refused &= !answer && answer.error().what.find("root") != std::string::npos;
		}
		_exit(refused ? 0 : 1);
	}
	int result = 0;
	ASSERT_EQ(waitpid(child, &result, 0), child);
	EXPECT_EQ(WEXITSTATUS(result), 0);
}

} // namespace
