/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Recording from a live daemon: turns become requests whose block ids follow
 * what the blocks hold, attention becomes an .att file, and the simulator reads
 * what cxl-kv record wrote, however it was ended. Guests run it with the module
 * as keeper (selftests/vm/client/record.sh).
 */
#include "cli/control_client.h"
#include "lib/daemon_fixture.h"
#include "sim/att_trace.h"
#include "sim/block_trace.h"
#include "sim/trace_file.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

using namespace cxlkv;
using nlohmann::json;

namespace {

/* Three sessions of 8 blocks of 16 tokens, 2 heads. */
constexpr cxl_kv_geometry kGeometry{
	.nr_slots = 3,
	.nr_layers = 2,
	.nr_kv_heads = 1,
	.head_dim = 64,
	.elem_bytes = 2,
	.tokens_per_block = 16,
	.tokens_per_slot = 128,
	.block_bytes = 4096,
};
constexpr uint32_t kHeads = 2, kBlocks = 8, kTokens = 16;

class RecordTest : public DaemonFixture {
protected:
	void SetUp() override { start(kGeometry, {"HOT__LIMIT=16MiB", "COLD__SIZE=64MiB"}); }

	/* A session that holds these texts, a block each. */
	void open_session(uint32_t slot, const std::vector<int> &texts)
	{
		ASSERT_EQ(cxl_kv_session_open(arena_, slot, nullptr), 0);
		write(slot, 0, texts);
	}
	void write(uint32_t slot, uint32_t first, const std::vector<int> &texts)
	{
		const auto nr = static_cast<uint32_t>(texts.size());
		for (uint32_t head = 0; head < kHeads; head++) {
			cxl_kv_range range{slot, head, first, nr};
			ASSERT_EQ(cxl_kv_make(arena_, &range, 1, timeout_ms), 0);
			ASSERT_EQ(cxl_kv_lease(arena_, &range, 1, timeout_ms, nullptr), 0);
			for (uint32_t b = 0; b < nr; b++)
				memset(cxl_kv_block(arena_, slot, head, first + b), texts[b],
				       kGeometry.block_bytes);
			ASSERT_EQ(cxl_kv_unlease(arena_, &range, 1), 0);
		}
	}
	/* Prefills up to position, decodes some more. */
	void turn(uint32_t slot, uint32_t position, uint32_t nr_decoded)
	{
		for (uint32_t i = 0; i <= nr_decoded; i++)
			ASSERT_EQ(cxl_kv_hint_position(arena_, slot, position + i), 0);
	}

	static ControlClient begin(const char *what)
	{
		auto client = ControlClient::connect();
		EXPECT_TRUE(client);
		EXPECT_TRUE(client->call({{"op", "record"}, {"what", what}}));
		return std::move(*client);
	}
	static json next(ControlClient &client)
	{
		auto event = client.next_event(10000);
		EXPECT_TRUE(event) << (event ? "" : event.error().what);
		return event ? *event : json();
	}

	/* The command, beside this test's folder; its files can't become larger than max_bytes. */
	static pid_t start_command(const std::vector<std::string> &words,
				   rlim_t max_bytes = RLIM_INFINITY)
	{
		const std::string program =
			std::filesystem::read_symlink("/proc/self/exe").parent_path() /
			"../bin/cxl-kv";
		std::vector<const char *> argv{"cxl-kv", "record", "-q"};
		for (const std::string &word : words)
			argv.push_back(word.c_str());
		argv.push_back(nullptr);
		const pid_t pid = fork();
		if (pid == 0) {
			const rlimit limit{max_bytes, max_bytes};
			signal(SIGXFSZ, SIG_IGN); /* an error like that of a full disk */
			setrlimit(RLIMIT_FSIZE, &limit);
			execv(program.c_str(), const_cast<char **>(argv.data()));
			_exit(127);
		}
		return pid;
	}
	static int exit_status(pid_t pid)
	{
		int status = 0;
		waitpid(pid, &status, 0);
		return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
	[[nodiscard]] std::string file(const char *name) const
	{
		return daemon_->folder() + "/" + name;
	}
};

/* Where a parked session goes to cold at once. */
class RecordOfColdTest : public RecordTest {
protected:
	void SetUp() override
	{
		start(kGeometry,
		      {"HOT__LIMIT=16MiB", "COLD__SIZE=64MiB", "DAEMON__INTERVAL_MS=5",
		       "SESSION__IDLE_MS=40", "SESSION__RESUME_MS=10", "SESSION__WARM_MS=0",
		       "SESSION__COLD_MS=80", "SESSION__MIN_RESIDENCY_MS=0"});
	}
};

} // namespace

TEST_F(RecordTest, TheModuleIsTheKeeperWhereThereIsOne)
{
	auto status = ControlClient::connect()->call({{"op", "status"}});
	ASSERT_TRUE(status);
	EXPECT_EQ((*status)["mode"], access("/dev/cxl_kv", F_OK) == 0 ? "module" : "native");
}

TEST_F(RecordTest, EqualPrefixesHaveEqualIdsWhateverTheSlotHeldBefore)
{
	ControlClient client = begin("requests");
	open_session(0, {1, 2, 3});
	turn(0, 40, 5);
	ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
	const json first = next(client);
	EXPECT_EQ(first["event"], "request");
	EXPECT_EQ(first["input_length"], 40);
	EXPECT_EQ(first["output_length"], 5);
	EXPECT_EQ(first["block_tokens"], kTokens);
	ASSERT_EQ(first["hash_ids"].size(), 2u) << first; /* the third block is not full */

	/* The same beginning in another slot, another end. */
	open_session(1, {1, 2, 9});
	turn(1, 48, 0);
	ASSERT_EQ(cxl_kv_session_close(arena_, 1), 0);
	const json second = next(client);
	ASSERT_EQ(second["hash_ids"].size(), 3u) << second;
	EXPECT_EQ(second["hash_ids"][0], first["hash_ids"][0]);
	EXPECT_EQ(second["hash_ids"][1], first["hash_ids"][1]);

	/* The conversation goes on: its ids stay, new ones follow. */
	ASSERT_EQ(cxl_kv_session_wake(arena_, 0, timeout_ms, nullptr), 0);
	write(0, 3, {4});
	turn(0, 64, 2);
	ASSERT_EQ(cxl_kv_session_park(arena_, 0), 0);
	const json third = next(client);
	ASSERT_EQ(third["hash_ids"].size(), 4u) << third;
	EXPECT_EQ(third["hash_ids"][0], first["hash_ids"][0]);
	EXPECT_NE(third["hash_ids"][2], second["hash_ids"][2]);

	/* A slot that is used again, with the second block only: another prefix. */
	open_session(1, {2, 2, 3});
	turn(1, 48, 0);
	ASSERT_EQ(cxl_kv_session_park(arena_, 1), 0);
	const json fourth = next(client);
	ASSERT_EQ(fourth["hash_ids"].size(), 3u) << fourth;
	for (size_t i = 0; i < 3; i++)
		EXPECT_NE(fourth["hash_ids"][i], third["hash_ids"][i]) << i;
	EXPECT_LE(first["timestamp"], second["timestamp"]);
	EXPECT_LE(third["timestamp"], fourth["timestamp"]);
}

/* A hole would read as zeros, and all that is spilled would look like one conversation. */
TEST_F(RecordOfColdTest, BlocksThatAreNotInMemoryHaveIdsOfTheirOwn)
{
	for (uint32_t slot = 0; slot < 2; slot++) {
		open_session(slot, {1, 2});
		turn(slot, 32, 0);
		ASSERT_EQ(cxl_kv_session_park(arena_, slot), 0);
	}
	ASSERT_TRUE(eventually([] {
		auto status = ControlClient::connect()->call({{"op", "status"}});
		return status && (*status)["tiers"]["hot"]["blocks"] == 0;
	})) << "parked sessions go to cold at once here";
	ControlClient client = begin("requests");
	std::vector<json> events;
	for (uint32_t slot = 0; slot < 2; slot++) {
		turn(slot, 33, 0);
		ASSERT_EQ(cxl_kv_session_park(arena_, slot), 0);
		events.push_back(next(client));
		ASSERT_EQ(events.back()["hash_ids"].size(), 2u) << events.back();
	}
	for (size_t i = 0; i < 2; i++)
		EXPECT_NE(events[0]["hash_ids"][i], events[1]["hash_ids"][i]) << i;
}

TEST_F(RecordTest, TurnsUnderWayComeBeforeTheEnd)
{
	ControlClient client = begin("requests");
	open_session(2, {1});
	turn(2, 16, 3);
	ASSERT_TRUE(client.send({{"op", "record_end"}}));
	EXPECT_EQ(next(client)["input_length"], 16);
	EXPECT_EQ(next(client)["event"], "end");
	EXPECT_EQ(next(client)["ok"], true);
}

TEST_F(RecordTest, BadRequestsAreRefused)
{
	ControlClient client = begin("requests");
	auto again = client.call({{"op", "record"}, {"what", "requests"}});
	EXPECT_FALSE(again);
	auto other = ControlClient::connect();
	ASSERT_TRUE(other);
	EXPECT_FALSE(other->call({{"op", "record"}, {"what", "secrets"}}));
	EXPECT_FALSE(other->call({{"op", "record"}}));
	/* Not recording: nothing to end, no harm. */
	EXPECT_TRUE(other->call({{"op", "record_end"}}));
}

TEST_F(RecordTest, TheSimulatorReadsWhatTheCommandWroteUntilCtrlC)
{
	const std::string path = file("requests.jsonl");
	const pid_t pid = start_command({path});
	/* Turns until it listens and has written some. */
	uint32_t nr = 0;
	ASSERT_TRUE(eventually([&] {
		open_session(0, {1, 2, static_cast<int>(3 + nr++ % 100)});
		turn(0, 48, 1);
		EXPECT_EQ(cxl_kv_session_close(arena_, 0), 0);
		auto text = sim::read_trace_file(path);
		return text && std::ranges::count(*text, '\n') >= 5;
	}));
	kill(pid, SIGINT);
	EXPECT_EQ(exit_status(pid), 0);
	auto text = sim::read_trace_file(path);
	ASSERT_TRUE(text);
	auto trace = sim::parse_block_trace(*text);
	ASSERT_TRUE(trace) << trace.error().what;
	EXPECT_GE(trace->nr_requests(), 5u);
	EXPECT_EQ(trace->nr_accesses(), uint64_t{3} * trace->nr_requests());
	/* Two blocks that all share, one of each; and what the daemon came to look at too late has
	 * an id of its own. */
	EXPECT_GE(trace->nr_unique(), 2 + trace->nr_requests());
	EXPECT_LT(trace->nr_unique(), trace->nr_accesses());
}

/* A turn that began first and ended last is written last, but belongs to the front. */
TEST_F(RecordTest, AtTheEndLinesAreSortedByWhenTurnsBegan)
{
	const std::string path = file("requests.jsonl");
	const pid_t pid = start_command({path});
	auto times = [&] {
		std::vector<uint64_t> all;
		auto text = sim::read_trace_file(path);
		auto trace = sim::parse_block_trace(text ? *text : "");
		for (uint32_t i = 0; trace && i < trace->nr_requests(); i++)
			all.push_back(trace->request(i).time_ms);
		return all;
	};
	ASSERT_TRUE(eventually([&] {
		open_session(0, {1, 2});
		turn(0, 32, 1);
		usleep(2000); /* times are in ms */
		open_session(1, {1, 3});
		turn(1, 32, 1);
		EXPECT_EQ(cxl_kv_session_close(arena_, 1), 0);
		EXPECT_EQ(cxl_kv_session_close(arena_, 0), 0);
		return times().size() >= 4 && !std::ranges::is_sorted(times());
	}));
	kill(pid, SIGINT);
	EXPECT_EQ(exit_status(pid), 0);
	EXPECT_GE(times().size(), 4u);
	EXPECT_TRUE(std::ranges::is_sorted(times()));
}

TEST_F(RecordTest, AFullDiskEndsItAfterAWholeLine)
{
	const std::string path = file("requests.jsonl");
	const pid_t pid = start_command({path}, 1000);
	int status = 0;
	ASSERT_TRUE(eventually([&] {
		open_session(0, {1, 2, 3});
		turn(0, 48, 1);
		EXPECT_EQ(cxl_kv_session_close(arena_, 0), 0);
		return waitpid(pid, &status, WNOHANG) == pid;
	}));
	EXPECT_EQ(WEXITSTATUS(status), 1);
	auto text = sim::read_trace_file(path);
	ASSERT_TRUE(text);
	auto trace = sim::parse_block_trace(*text);
	ASSERT_TRUE(trace) << trace.error().what;
	EXPECT_GE(trace->nr_requests(), 5u);
}

TEST_F(RecordTest, WhereTheDaemonRefusesAnOlderRecordingStays)
{
	const std::string path = file("older.jsonl");
	std::ofstream(path) << "0 1 2 3\n";
	setenv("CXL_KV_SOCKET", "/nowhere", 1);
	EXPECT_EQ(exit_status(start_command({path})), 3);
	setenv("CXL_KV_SOCKET", daemon_->socket().c_str(), 1);
	auto text = sim::read_trace_file(path);
	ASSERT_TRUE(text);
	EXPECT_EQ(*text, "0 1 2 3\n");
}

TEST_F(RecordTest, TwoRecordingsDoNotShareAFile)
{
	const std::string path = file("shared.jsonl");
	std::ofstream(path) << "0 1 2 3\n";
	Fd other(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
	ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
	EXPECT_EQ(exit_status(start_command({"-t", "1", path})), 1);
	auto text = sim::read_trace_file(path);
	ASSERT_TRUE(text);
	EXPECT_EQ(*text, "0 1 2 3\n");
}

TEST_F(RecordTest, APipeThatNobodyReadsIsRefused)
{
	const std::string path = file("pipe");
	ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
	const pid_t pid = start_command({path});
	int status = -1;
	if (!eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; })) {
		kill(pid, SIGKILL); /* it blocks the others */
		waitpid(pid, &status, 0);
	}
	EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
}

TEST_F(RecordTest, AttentionBecomesAnAttFile)
{
	const std::string path = file("live.att");
	const pid_t pid = start_command({"--att", "-n", "16", path});
	open_session(0, {1, 2, 3});
	/* Steps 16 to 31 again and again, until all of them were recorded. Head 1 looks at the
	 * first of two blocks, head 0 at both. */
	uint32_t step = 16;
	int status = -1;
	ASSERT_TRUE(eventually([&] {
		cxl_kv_hint_score(arena_, 0, 1, 0, 0.25f);
		cxl_kv_hint_score(arena_, 0, 0, 0, 1.0f);
		cxl_kv_hint_score(arena_, 0, 0, 1, 0.5f);
		cxl_kv_hint_position(arena_, 0, step + 1);
		step = step == 31 ? 16 : step + 1;
		return waitpid(pid, &status, WNOHANG) == pid;
	}));
	EXPECT_EQ(status, 0);
	auto bytes = sim::read_trace_file(path);
	ASSERT_TRUE(bytes);
	auto trace = sim::AttTrace::parse(std::move(*bytes));
	ASSERT_TRUE(trace) << trace.error().what;
	EXPECT_EQ(trace->layers, 2u);
	EXPECT_EQ(trace->kv_heads, 1u);
	EXPECT_EQ(trace->tokens_per_block, kTokens);
	EXPECT_EQ(trace->blocks, 2u);
	const uint32_t last = trace->steps - 1;
	EXPECT_NEAR(sim::AttTrace::mass(trace->row(1, 0, last)[0]), 0.25, 0.01);
	EXPECT_NEAR(sim::AttTrace::mass(trace->row(0, 0, last)[1]), 0.5, 0.01);
	EXPECT_EQ(trace->row(1, 0, last)[1], 0);
	EXPECT_EQ(trace->row(0, 0, 3)[0], 0) << "no report of step 3";
}
